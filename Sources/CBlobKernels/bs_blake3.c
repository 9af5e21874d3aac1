#include "bs_blake3.h"

#include <string.h>

#include "bs_blake3_internal.h"

// Leaves that are hashed before their parents are, when there are as many: a power of two, so that they are
// one whole subtree, and enough for the lower parents to fill the lanes.
enum { BATCH_LEAVES = 256, BATCH_BYTES = BATCH_LEAVES * LEAF_BYTES };

// Bytes that a state holds back: small updates are gathered until every lane has a leaf.
enum { BUFFER_LEAVES = 16, BUFFER_BYTES = BUFFER_LEAVES * LEAF_BYTES };

// 2^64 bytes are 2^54 leaves: one value for each bit of their number.
enum { DEPTH_MAX = 54 };

// The tree of the bytes so far, section 2.1: one value for each bit set in `leaf_count`, the largest
// subtree first. Its owner always holds back a byte at least, so that no parent made here can be the root.
typedef struct {
  uint64_t leaf_count;
  size_t depth;
  int level;
  uint8_t values[DEPTH_MAX][CV_BYTES];
} tree;

struct bs_blake3_state {
  tree tree;
  size_t buffered;
  uint8_t buffer[BUFFER_BYTES];
};

int bs_blake3_level_best(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return BS_BLAKE3_LANES16;
  if (__builtin_cpu_supports("avx2")) return BS_BLAKE3_LANES8;
  if (__builtin_cpu_supports("sse4.1")) return BS_BLAKE3_LANES4;
  return BS_BLAKE3_PORTABLE;
#elif defined(__aarch64__)
  return BS_BLAKE3_LANES4;
#else
  return BS_BLAKE3_PORTABLE;
#endif
}

bool bs_blake3_level_supported(int level) {
  return level >= BS_BLAKE3_PORTABLE && level <= bs_blake3_level_best();
}

// The compression function, section 2.2, truncated to a chaining value.
static void compress(uint8_t value[CV_BYTES], const uint8_t block[BLOCK_BYTES], uint32_t byte_count,
                     uint64_t counter, uint32_t flags) {
  uint32_t h[8], m[16];
  memcpy(h, value, sizeof h);
  memcpy(m, block, sizeof m);
  uint32_t v0 = h[0], v1 = h[1], v2 = h[2], v3 = h[3], v4 = h[4], v5 = h[5], v6 = h[6], v7 = h[7];
  uint32_t v8 = IV0, v9 = IV1, v10 = IV2, v11 = IV3;
  uint32_t v12 = (uint32_t)counter, v13 = (uint32_t)(counter >> 32), v14 = byte_count, v15 = flags;
  SEVEN_ROUNDS(ROUND);
  uint32_t result[8] = {v0 ^ v8,  v1 ^ v9,  v2 ^ v10, v3 ^ v11,
                        v4 ^ v12, v5 ^ v13, v6 ^ v14, v7 ^ v15};
  memcpy(value, result, sizeof result);
}

static void set_to_iv(uint8_t value[CV_BYTES]) {
  static const uint32_t iv[8] = {IV0, IV1, IV2, IV3, IV4, IV5, IV6, IV7};
  memcpy(value, iv, sizeof iv);
}

// A leaf of 0 to 1,024 bytes; `root` is ROOT when it is the whole tree.
static void hash_leaf(const uint8_t *bytes, size_t count, uint64_t counter, uint32_t root, uint8_t *value) {
  uint8_t result[CV_BYTES];
  set_to_iv(result);
  uint32_t flags = CHUNK_START;
  while (count > BLOCK_BYTES) {
    compress(result, bytes, BLOCK_BYTES, counter, flags);
    bytes += BLOCK_BYTES;
    count -= BLOCK_BYTES;
    flags = 0;
  }
  uint8_t block[BLOCK_BYTES] = {0};
  if (count > 0) memcpy(block, bytes, count);
  compress(result, block, (uint32_t)count, counter, flags | CHUNK_END | root);
  memcpy(value, result, CV_BYTES);
}

// The parent of the two values that lie at `children`; it may overwrite them.
static void hash_parent(const uint8_t children[BLOCK_BYTES], uint32_t root, uint8_t *value) {
  uint8_t result[CV_BYTES];
  set_to_iv(result);
  compress(result, children, BLOCK_BYTES, 0, PARENT | root);
  memcpy(value, result, CV_BYTES);
}

// A kernel, and how many inputs it hashes at most.
typedef struct {
  bs_blake3_kernel *hash;
  size_t count_max;
} choice;

static void one_by_one(const uint8_t *inputs, size_t count, size_t last_bytes, const bs_blake3_shape *shape,
                       uint8_t *values) {
  (void)count;
  if (shape->flags & PARENT) {
    hash_parent(inputs, shape->flags & ROOT, values);
  } else {
    hash_leaf(inputs, last_bytes, shape->counter, shape->last & ROOT, values);
  }
}

// The kernel that hashes `count` inputs fastest, or the first of them. A last one of less than half a leaf is not
// worth more lanes than those before it need. On arm64 the plain code hashes a single input.
static choice choose(int level, size_t count, bool is_last_short) {
#if defined(__x86_64__)
  if (level == BS_BLAKE3_LANES16) {
    if (count <= 2) return (choice){bs_blake3_lanes8_avx512, 2};
    if (count <= 4 + (size_t)is_last_short) return (choice){bs_blake3_lanes16, 4};
    if (count <= 8 + (size_t)is_last_short) return (choice){bs_blake3_lanes8_avx512, 8};
    return (choice){bs_blake3_lanes16, 16};
  }
  if (level == BS_BLAKE3_LANES8) return (choice){bs_blake3_lanes8, count <= 4 ? 2 : 8};
  if (level == BS_BLAKE3_LANES4) return (choice){bs_blake3_lanes4, count <= 2 ? 1 : 4};
#elif defined(__aarch64__)
  if (level == BS_BLAKE3_LANES4 && count > 1 + (size_t)is_last_short) return (choice){bs_blake3_lanes4, 4};
#endif
  (void)level, (void)count, (void)is_last_short;
  return (choice){one_by_one, 1};
}

// Any number of inputs of one shape; the last has `last_bytes`.
static void hash_many(int level, const uint8_t *inputs, size_t count, size_t last_bytes,
                      bs_blake3_shape shape, uint8_t *values) {
  size_t stride = shape.block_count * BLOCK_BYTES;
  while (count > 0) {
    choice kernel = choose(level, count, last_bytes < stride / 2);
    size_t taken = count < kernel.count_max ? count : kernel.count_max;
    // A leaf alone has no more blocks than it needs.
    if (count == 1 && last_bytes < stride) shape.block_count = last_block(last_bytes) + 1;
    kernel.hash(inputs, taken, taken < count ? stride : last_bytes, &shape, values);
    inputs += taken * stride;
    values += taken * CV_BYTES;
    shape.counter += taken * shape.counter_step;
    count -= taken;
  }
}

static void hash_leaves(int level, const uint8_t *bytes, size_t count, size_t last_bytes, uint64_t counter,
                        uint32_t root, uint8_t *values) {
  bs_blake3_shape leaves = {
      .block_count = LEAF_BLOCKS,
      .counter = counter,
      .counter_step = 1,
      .first = CHUNK_START,
      .last = (uint8_t)(CHUNK_END | root),
  };
  hash_many(level, bytes, count, last_bytes, leaves, values);
}

static void hash_parents(int level, const uint8_t *children, size_t count, uint32_t root, uint8_t *values) {
  bs_blake3_shape parents = {.block_count = 1, .flags = (uint8_t)(PARENT | root)};
  hash_many(level, children, count, BLOCK_BYTES, parents, values);
}

// Replaces values by their parents, level by level, until no more than `goal` (1 or 2) are left, and
// returns how many. One without a partner rises as it is: this gives the paper's tree, whose left subtrees
// are full.
static size_t reduce(int level, uint8_t *values, size_t count, size_t goal) {
  while (count > goal) {
    size_t pairs = count / 2;
    hash_parents(level, values, pairs, 0, values);
    if (count % 2 != 0) memmove(values + pairs * CV_BYTES, values + (count - 1) * CV_BYTES, CV_BYTES);
    count = pairs + count % 2;
  }
  return count;
}

// Adds a full subtree, whose number of leaves is a power of two that divides the leaves so far.
static void tree_add(tree *t, const uint8_t *bytes, size_t leaf_count) {
  uint8_t values[BATCH_LEAVES * CV_BYTES];
  hash_leaves(t->level, bytes, leaf_count, LEAF_BYTES, t->leaf_count, 0, values);
  reduce(t->level, values, leaf_count, 1);
  memcpy(t->values[t->depth], values, CV_BYTES);
  t->depth += 1;
  // Like adding one in binary: every bit that carries is a pair whose parent is due.
  for (uint64_t bit = leaf_count; (t->leaf_count & bit) != 0; bit <<= 1) {
    t->depth -= 1;
    hash_parents(t->level, t->values[t->depth - 1], 1, 0, t->values[t->depth - 1]);
  }
  t->leaf_count += leaf_count;
}

// Adds subtrees from the start of `bytes`, as large as alignment permits and none smaller than
// `leaf_count_min` leaves, but never the last byte. Returns the number of bytes added.
static size_t tree_add_prefix(tree *t, const uint8_t *bytes, size_t count, size_t leaf_count_min) {
  size_t added = 0;
  for (;;) {
    size_t available = (count - added - 1) / LEAF_BYTES;
    size_t leaf_count = BATCH_LEAVES;
    while (leaf_count > available || (t->leaf_count & (leaf_count - 1)) != 0) {
      leaf_count /= 2;
      if (leaf_count < leaf_count_min) return added;
    }
    tree_add(t, bytes + added, leaf_count);
    added += leaf_count * LEAF_BYTES;
  }
}

// The root over the tree and the bytes behind it: at most a batch, and none only if the tree is empty too.
static void tree_finish(const tree *t, const uint8_t *bytes, size_t count, uint8_t digest[CV_BYTES]) {
  size_t leaf_count = count > 0 ? (count + LEAF_BYTES - 1) / LEAF_BYTES : 1;
  if (leaf_count == 1 && t->depth == 0) {
    hash_leaves(t->level, bytes, 1, count, 0, ROOT, digest);
    return;
  }
  uint8_t values[BATCH_LEAVES * CV_BYTES];
  size_t last_bytes = count - (leaf_count - 1) * LEAF_BYTES;
  hash_leaves(t->level, bytes, leaf_count, last_bytes, t->leaf_count, 0, values);
  if (t->depth == 0) {
    reduce(t->level, values, leaf_count, 2);
    hash_parents(t->level, values, 1, ROOT, digest);
    return;
  }
  uint8_t pair[2 * CV_BYTES];
  reduce(t->level, values, leaf_count, 1);
  memcpy(pair + CV_BYTES, values, CV_BYTES);
  for (size_t left = t->depth; left > 0; left--) {
    memcpy(pair, t->values[left - 1], CV_BYTES);
    hash_parents(t->level, pair, 1, left == 1 ? ROOT : 0, pair + CV_BYTES);
  }
  memcpy(digest, pair + CV_BYTES, CV_BYTES);
}

static void tree_init(tree *t, int level) {
  t->leaf_count = 0;
  t->depth = 0;
  t->level = level;
}

// Begins to fetch the first blocks of the leaves that are hashed first, so that the lanes wait for memory once,
// not for each block; from there on the kernels fetch ahead. Bytes that were just read are in the cache already.
static void prefetch_leaves(const uint8_t *bytes, size_t count) {
  enum { LEAVES = 16 };
  for (size_t offset = 0; offset < PREFETCH_BYTES; offset += BLOCK_BYTES) {
    for (size_t leaf = 0; leaf < LEAVES && leaf * LEAF_BYTES + offset < count; leaf++) {
      __builtin_prefetch(bytes + leaf * LEAF_BYTES + offset);
    }
  }
}

void bs_blake3_at_level(int level, const void *bytes, size_t count, uint8_t digest[32]) {
  prefetch_leaves(bytes, count);
  tree t;
  tree_init(&t, level);
  size_t added = 0;
  if (count > BATCH_BYTES) added = tree_add_prefix(&t, bytes, count, BATCH_LEAVES);
  tree_finish(&t, (const uint8_t *)bytes + added, count - added, digest);
}

void bs_blake3(const void *bytes, size_t count, uint8_t digest[32]) {
  bs_blake3_at_level(bs_blake3_level_best(), bytes, count, digest);
}

size_t bs_blake3_state_size(void) { return sizeof(bs_blake3_state); }

void bs_blake3_init(bs_blake3_state *state, int level) {
  tree_init(&state->tree, level);
  state->buffered = 0;
}

void bs_blake3_update(bs_blake3_state *state, const void *bytes, size_t count) {
  const uint8_t *rest = bytes;
  while (count > 0) {
    if (state->buffered == BUFFER_BYTES) {
      tree_add(&state->tree, state->buffer, BUFFER_LEAVES);
      state->buffered = 0;
    }
    if (state->buffered == 0 && count > BUFFER_BYTES) {
      size_t added = tree_add_prefix(&state->tree, rest, count, BUFFER_LEAVES);
      rest += added;
      count -= added;
    }
    size_t room = BUFFER_BYTES - state->buffered;
    size_t taken = count < room ? count : room;
    memcpy(state->buffer + state->buffered, rest, taken);
    state->buffered += taken;
    rest += taken;
    count -= taken;
  }
}

void bs_blake3_finalize(const bs_blake3_state *state, uint8_t digest[32]) {
  tree_finish(&state->tree, state->buffer, state->buffered, digest);
}
