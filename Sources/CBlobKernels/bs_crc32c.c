#include "bs_crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "bs_crc32c_table.h"

uint32_t bs_crc32c_table(uint32_t seed, const void *bytes, size_t count) {
  const uint8_t *p = bytes;
  uint32_t crc = ~seed;
  for (size_t i = 0; i < count; i++) crc = (crc >> 8) ^ table[(crc ^ p[i]) & 0xFF];
  return ~crc;
}

#if defined(__x86_64__)
#define HARDWARE __attribute__((target("sse4.2,pclmul")))
#define STEP_8(crc, word) ((uint32_t)__builtin_ia32_crc32di((crc), (word)))
#define STEP_1(crc, byte) __builtin_ia32_crc32qi((crc), (byte))
#elif defined(__aarch64__)
#define HARDWARE __attribute__((target("crc")))
#define STEP_8(crc, word) __builtin_arm_crc32cd((crc), (word))
#define STEP_1(crc, byte) __builtin_arm_crc32cb((crc), (byte))
#endif

bool bs_crc32c_is_hardware(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__) && defined(__linux__)
  return (getauxval(AT_HWCAP) & (1ul << 7)) != 0;  // HWCAP_CRC32 of asm/hwcap.h
#elif defined(__aarch64__) && defined(__APPLE__)
  return true;  // every Mac with this architecture has it
#else
  return false;
#endif
}

#if defined(HARDWARE)

// The instruction takes three cycles, but one can begin in each: three stretches of the bytes run side by
// side. `behind` then multiplies a value by the power of x that stands for the zero bytes that follow it.
#if defined(__x86_64__)

// Short, because putting the stretches together costs a few cycles: most records have about 10 KB.
enum { STRETCH_BYTES = 256 };

// x^(8 * STRETCH_BYTES - 33) and x^(16 * STRETCH_BYTES - 33), modulo the polynomial. The product of two reflected
// values is the reflected one times x, and the instruction multiplies by x^32 when it reduces that (Gopal et al.,
// "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel 2011).
#define ONE_STRETCH 0xB9E02B86u
#define TWO_STRETCHES 0xDD7E3B0Cu

HARDWARE static inline uint32_t behind(uint32_t crc, uint32_t power) {
  __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc), _mm_cvtsi32_si128((int)power), 0);
  return STEP_8(0, (uint64_t)_mm_cvtsi128_si64(product));
}

#else

// The polynomial 0x1EDC6F41, bits reflected: the top bit is the coefficient of x^0.
#define POLYNOMIAL 0x82F63B78u

enum { STRETCH_BYTES = 4096 };

// x^(8 * STRETCH_BYTES) and its square, modulo the polynomial.
#define ONE_STRETCH 0x35D73A62u
#define TWO_STRETCHES 0x28461564u

static uint32_t behind(uint32_t crc, uint32_t power) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; bit--) {
    product ^= power & (0u - ((crc >> bit) & 1));
    power = (power >> 1) ^ (POLYNOMIAL & (0u - (power & 1)));
  }
  return product;
}

#endif

HARDWARE static inline uint64_t word_at(const uint8_t *p) {
  uint64_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

HARDWARE static uint32_t hardware(uint32_t seed, const uint8_t *p, size_t count) {
  uint32_t crc = ~seed;
  for (; count >= 3 * STRETCH_BYTES; p += 3 * STRETCH_BYTES, count -= 3 * STRETCH_BYTES) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < STRETCH_BYTES; i += 8) {
      crc = STEP_8(crc, word_at(p + i));
      second = STEP_8(second, word_at(p + STRETCH_BYTES + i));
      third = STEP_8(third, word_at(p + 2 * STRETCH_BYTES + i));
    }
    crc = behind(crc, TWO_STRETCHES) ^ behind(second, ONE_STRETCH) ^ third;
  }
  for (; count >= 8; p += 8, count -= 8) crc = STEP_8(crc, word_at(p));
  for (; count > 0; p++, count--) crc = STEP_1(crc, *p);
  return ~crc;
}

#endif

uint32_t bs_crc32c(uint32_t seed, const void *bytes, size_t count) {
#if defined(HARDWARE)
  if (bs_crc32c_is_hardware()) return hardware(seed, bytes, count);
#endif
  return bs_crc32c_table(seed, bytes, count);
}
