#include "bs_similarity.h"

// After Odess (Zou et al., "Odess: Speeding up Resemblance Detection for Redundancy Elimination by Fast
// Content-Defined Sampling", ICDE 2021), which samples by content what the N-transform method (Shilane et
// al., "WAN Optimized Replication of Backup Datasets Using Stream-Informed Delta Compression", FAST 2012)
// takes at every byte. Super-features are from Broder, "Identifying and Filtering Near-Duplicate Documents",
// CPM 2000.
//
// A rolling gear hash h = 2h + gear[byte] sees the last 64 bytes. Where its top sample_bits bits are zero, a
// place that moves with the content, the 32 bits below them are a sample x. Feature i is the greatest
// multiplier[i] * x + increment[i] (mod 2^32) of all samples, and features_each of them make a super-feature.
// None of these constants may ever change: super-features of one chunk are compared with those of another
// that was stored years before.
enum { window_bytes = 64, sample_bits = 6, features_each = 3 };
enum { feature_count = features_each * bs_super_feature_count };

// The stream of splitmix64 begun with the ASCII text "similar!" (0x73696d696c617221), its numbers 1 to 256.
static const uint64_t gear[256] = {
    0x69ed6b3df7380b4a, 0x9f722e27e89b274c, 0xff29f134b5bd213e, 0x0991b94acac82a02,
    0x5ad8d426f3339696, 0x6b70c3e2ff32ae09, 0xf70c0f91ab811a78, 0x524743a7f233df61,
    0xc837899ee49614f1, 0x95f350c74eb4059b, 0x358531691626e257, 0x7b2c794e7537640d,
    0x9b1438c05f491fad, 0xdc79037db33867b4, 0x9e934b082f945ed8, 0x6fa61a7fc81e29a3,
    0x64ceedaafe152cf7, 0xa6a48d64f255db7d, 0x19da607d707b3dd0, 0x2815ecc9935cff63,
    0x9bbb7b6b7e9171d7, 0x340c0009010a38b8, 0xdaad67f59b93ff3a, 0xaf6ce76d51b4d27a,
    0x120040c4f9d40a1f, 0x7721d09c42d296e6, 0x2e968876aa63a4de, 0x191b8a336b260e5c,
    0xa10d8adc8e60ff41, 0xd4bd70dba1edaec2, 0xa5fc7e9fe86299c9, 0xa11b089d1536de74,
    0x361ed5851f028578, 0xec632cef78b303ac, 0x3a91f83044f1aec9, 0x31d2fdcf95acc4e5,
    0x092677a27cb1f91c, 0x8f31ffd1a9a54594, 0x854ecc9c46a95b89, 0xa7c4c501f02c7959,
    0x7217806b62ffb59d, 0x8ecf703d4fb3a51a, 0xc44f3cb89cf716ea, 0xda7abce34adb749e,
    0xe96b9b1532cb2e6f, 0x14a719042490cab9, 0x2bd834043c9c1782, 0xfbaea9cbc6d2364f,
    0xe8e81ec2858ab66d, 0x78d67ef1dc358850, 0xf9a8ead2bc4b3536, 0x5edd8d881a25024e,
    0xe84178273df26fff, 0xe6789585c9aea490, 0x734fa5df992916f4, 0x5f69ae0016d0c972,
    0xb2d105aa97dda555, 0xccc064ed3078002c, 0xd4387f1f79855bf4, 0x34373891c4bba52d,
    0x22e1269ee074bf9f, 0x085531cff7992d4b, 0x7360021f0291f559, 0x9afd5bf624daecb8,
    0xc22903fcff810959, 0x4992fe8add5e652a, 0x04a61200726294b6, 0x725e818aa5400957,
    0x5f3f9330360b8de0, 0x79a7377430a5d5b6, 0xc347e9280cce4633, 0xcfc2ba4425a320c3,
    0x5955b0244f562ade, 0x74f07e373e5db788, 0x33e7f244b794a8f7, 0xb587d6de47025491,
    0x331eccbfd7aa6dcb, 0xd09931720040bdfe, 0x37e51d80c28964b2, 0x5f695217986fd5cc,
    0x41923e6bfb9ab119, 0x94d9744650f71307, 0x2be5faf9810e5a2f, 0x5293610904536feb,
    0x77f7b5e92d87034f, 0xa331add9bdeee64b, 0xf20b066fb62a4fd2, 0xeca5c7d548111ff0,
    0x87003a647b5c60f5, 0x3c56ff3ad0b7ef9a, 0x634fb78466e1ea87, 0x9f27e2067a10fee2,
    0x51c96454f04165db, 0x8b9504ba16119862, 0xbe895e1b9a92e732, 0x2e5a0024c6df4905,
    0x1b48eb4b41ca3dbe, 0x8aa5ec58cec01ebc, 0x7c6a483b966dc948, 0xe5df96c0d1b8000a,
    0x673dc99a8efc404f, 0x277e0a9eeb3fae44, 0x18c0769af1d95f16, 0xa1614098e2d6ecd1,
    0x6f7bbf4b4611c301, 0x3426ce98d3e5a469, 0x7f59997476120547, 0xbd2da6bb8c97e214,
    0xff22617137207628, 0x9b12524a8526521d, 0xb86234f1fb43cb9b, 0x4ed591b460e8bd4f,
    0x4a728f67b37ca618, 0x0e1d94247c4127b6, 0x4d0cfcc4fb726167, 0xcaa4eb71ff91e8c6,
    0xa5ececb8ce2cd181, 0x4434a2ab704fac6d, 0x1d07a4e1db7d1f6f, 0x596008b383d06dc3,
    0x6cc8852f6e9ac66f, 0x71518c6743e53aef, 0x1e2d64102d95419b, 0xdd6c5e067ef04834,
    0x13c18ed47bfb4462, 0x2188db6358d60e2e, 0xe117a08d823f928b, 0xaa01c495e86e8fac,
    0x5600f4183596b3d9, 0xeb57437322859e6b, 0xb22fbe2b2bf6332a, 0xa16636b1cf971c3f,
    0x2a09d294cfed14cb, 0x2194ad1ef444ed7e, 0x2e0f0bce824b48f4, 0xd03fb186816eec0e,
    0x4c361870fcc738d7, 0x357467690715c3f5, 0xe2cefc2ccffbdd30, 0xd17ca879f1f0e91d,
    0x65d7421e3a44aa3d, 0xaaf5d1956cf70763, 0xb745911bf83ff9f0, 0x34b9704c79a9987b,
    0x0e73796850dda2ef, 0xbb5c3f0bd0b5cef7, 0x6704f74e28af69af, 0x529ae215295b225b,
    0xc00ee9f237c00871, 0xa02cffd927f9e2fb, 0x2490ca63b9246845, 0x653a48ec2cf453bc,
    0xe1e124bacbdc3bb5, 0xaf0ee58accd209b2, 0x9b45781a406e1f34, 0x73f9a98e60ee110a,
    0xb43c301d7734d717, 0x91a526ca1d4ae4bc, 0xb97a6cca4a0c049b, 0xf2d1d797ef174e2d,
    0xc7c311b5f9d88e0a, 0x493c68e35a5764e6, 0xe76f4a7d14e560ac, 0x0461d989feb2d74c,
    0x3fe4ad6a3e83f7ac, 0xd6e79fc9ca469529, 0x913010fd5f369f9e, 0x0bf1376977d0dd91,
    0x2aed3a5576986012, 0x322357867f3608b2, 0x051a361900c6f0a9, 0x4a2a4b9313e47e1c,
    0xf7c2f8be58dc9408, 0x7de98823f9cf48a9, 0x96dfce33167b7d94, 0xb86ddb125fec7b8b,
    0xc341b2db2795d1a1, 0x84cd8f4acdb4e446, 0x99aeed8eee927f5d, 0xab7e9d3fa53d6efb,
    0x6976820af36c895e, 0x65b4be91b5218445, 0x53cbdd9daf7239f8, 0x13f89c8505d88620,
    0xdcdab2b4af18c06a, 0x15d27ab51302bd27, 0x3781a6cfab1037ba, 0x9af67cfaa98718ac,
    0x5fd045d81f416df5, 0x1af17d8ca6fb9d59, 0xda1b66089894bca1, 0x130f8df91dff7536,
    0xa4dbaf4ac784478d, 0xfb4616fdad39548c, 0xe44210dcfad34a42, 0x9b9357a9d886cff3,
    0xdeec16d6adb581a2, 0x593ecc6ebf616442, 0xd207641f36a978d1, 0xcef11cf398bdb0a5,
    0x2b05bdcab633ce9b, 0xa9f61a642c6195f6, 0x9a4572cad0c3dcf0, 0x3786fef0a8ee395f,
    0x213c6a45d56ff105, 0x623b891bd219b305, 0xa6e97a24b5d491f9, 0x1cb85aec6ea029a9,
    0x14391cc3fb2b94cd, 0xb4d26a438d6cae2d, 0x3582f6c2b6d83d67, 0x9c3f724c091e77a8,
    0xdb4e85e98bac465f, 0x95f9481930787839, 0xa931536318718012, 0xd02c6d742f00cda4,
    0xcbeb9c3b7dac3496, 0x52bd0189d5c9bc78, 0xd8117adb6e33e7a6, 0x049be50c3ada849e,
    0xc756ddbceda904a0, 0xf7f985eac9cdb1fb, 0xc32ce1d8eb2233cd, 0x41b1486fa26dc854,
    0x27a23b9b5584cf08, 0xa18088f330bc04ec, 0x43d7d64908c678a3, 0xd9f795d5e7fd51fa,
    0x4d52133732d51910, 0x0884cabe5306f116, 0xda88962f34ed1e20, 0x5839b48bd0c64f9e,
    0x06db668c769a2de6, 0x71ce0ace20db6a19, 0x41706be891b146de, 0x10ad15c212c5b1b7,
    0xdcb8bc3285a26492, 0x12bb56ea2d8724dc, 0xfd4acb42037e948a, 0xa3ca306a826eea3a,
    0x8c3b8eff5f3825d1, 0xd5fcc87b79f4480c, 0xef67bd0fcf28228b, 0x591e62bf1ad6973f,
    0x0a47f84ee8baa2bf, 0x9b6892aa2232a0ae, 0x250a282c850c3344, 0x92a3d027957d5251,
    0xa5786fb91c6ced45, 0x623c62bafb7d555a, 0x493de0111bb3be7d, 0x090e9c3ef240f91e,
    0x0b8393917b7ab67f, 0x46d7620ff2272875, 0x1f369133b573b442, 0x065668559259e17c,
};

// Numbers 257 to 265 of the same stream: the upper half, made odd, and the lower half.
static const uint32_t multiplier[feature_count] = {
    0xfb9bde5f, 0xc0bb8b6f, 0x7c83f1b1, 0x63f6e361, 0x0dab04f9, 0x529272d9,
    0xaac18e2d, 0x7c99f219, 0x6d8f2759,
};
static const uint32_t increment[feature_count] = {
    0x2df45127, 0x8c3bfdf2, 0x079a3d8f, 0x08bf78e9, 0x59779b83, 0x6c17c153,
    0x6acf558e, 0x820751a5, 0xac2455a8,
};

// The finisher of MurmurHash3: every bit of the key depends on every bit of the features.
static uint32_t mixed(uint32_t z) {
  z = (z ^ (z >> 16)) * 0x85ebca6bu;
  z = (z ^ (z >> 13)) * 0xc2b2ae35u;
  return z ^ (z >> 16);
}

typedef struct {
  uint32_t feature[feature_count];
  uint32_t last;
  size_t count;
} sampling;

static void sample(sampling *s, uint64_t h) {
  const uint32_t x = (uint32_t)(h >> (32 - sample_bits));
  // In a run of equal bytes the hash stands still, and must not be paid for at each of them.
  if (x == s->last) return;
  s->last = x;
  s->count++;
  for (int f = 0; f < feature_count; f++) {
    const uint32_t value = multiplier[f] * x + increment[f];
    s->feature[f] = value > s->feature[f] ? value : s->feature[f];
  }
}

size_t bs_super_features(const void *bytes, size_t count, uint32_t out[bs_super_feature_count]) {
  const uint8_t *p = bytes;
  const uint64_t limit = UINT64_C(1) << (64 - sample_bits);
  sampling s = {{0}, 0, 0};
  uint64_t h = 0;
  size_t i = 0;
  // Until the window is full, the hash would also depend on where the chunk begins.
  for (; i < window_bytes - 1 && i < count; i++) h = (h << 1) + gear[p[i]];
  // Two bytes in a step: the second hash does not wait for the first.
  for (; i + 2 <= count; i += 2) {
    const uint64_t one = gear[p[i]], two = gear[p[i + 1]];
    const uint64_t middle = (h << 1) + one;
    h = (h << 2) + ((one << 1) + two);
    if (middle < limit) sample(&s, middle);
    if (h < limit) sample(&s, h);
  }
  if (i < count) {
    h = (h << 1) + gear[p[i]];
    if (h < limit) sample(&s, h);
  }
  for (int k = 0; k < bs_super_feature_count; k++) {
    uint32_t key = (uint32_t)k;
    for (int f = 0; f < features_each; f++) key = mixed(key * 31 + s.feature[k * features_each + f]);
    out[k] = key;
  }
  return s.count;
}
