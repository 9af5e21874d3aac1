// A BLAKE3 kernel of LANES inputs side by side: a template, included once for each width with LANES, KERNEL
// (the function's name) and TARGET (its attributes) defined. Vector i holds word i of every lane, so that
// the rounds are those of a single input; only the message has to be transposed.

#include <stdbool.h>
#include <string.h>

#include "bs_blake3_internal.h"

typedef uint32_t quad __attribute__((vector_size(16)));
typedef uint32_t vector __attribute__((vector_size(4 * LANES)));

// Interleaving of two vectors by 32 and 64 bits, within units of 128 bits as the processors like it; and one
// vector of the quads at `q`.
#if LANES == 4
#define LOW_32(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_32(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_64(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define HIGH_64(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#define JOIN(q) (q)[0]
#elif LANES == 8
#define LOW_32(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH_32(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW_64(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH_64(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define JOIN(q) __builtin_shufflevector((q)[0], (q)[1], 0, 1, 2, 3, 4, 5, 6, 7)
#elif LANES == 16
#define LOW_32(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define HIGH_32(a, b) \
  __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define LOW_64(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH_64(a, b) \
  __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define PAIR(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7)
#define JOIN(q)                                                                                  \
  __builtin_shufflevector(PAIR((q)[0], (q)[1]), PAIR((q)[2], (q)[3]), 0, 1, 2, 3, 4, 5, 6, 7, 8, \
                          9, 10, 11, 12, 13, 14, 15)
#endif

// Turns the squares of four rows and four words, one for each unit of 128 bits, round their diagonals.
TARGET __attribute__((always_inline)) static inline void transpose(vector r[4]) {
  vector low01 = LOW_32(r[0], r[1]), high01 = HIGH_32(r[0], r[1]);
  vector low23 = LOW_32(r[2], r[3]), high23 = HIGH_32(r[2], r[3]);
  r[0] = LOW_64(low01, low23);
  r[1] = HIGH_64(low01, low23);
  r[2] = LOW_64(high01, high23);
  r[3] = HIGH_64(high01, high23);
}

// Word i of the block at each lane's place becomes m[i].
TARGET __attribute__((always_inline)) static inline void load_message(
    const uint8_t *const lanes[LANES], size_t offset, vector m[16]) {
  // So many streams at once are more than the processor's own prefetcher follows. The address may lie
  // behind the bytes: it is not read.
  for (int lane = 0; lane < LANES; lane++) {
    __builtin_prefetch((const void *)((uintptr_t)lanes[lane] + offset + PREFETCH_BYTES));
  }
  for (int word = 0; word < 16; word += 4) {
    for (int row = 0; row < 4; row++) {
      // Quads are joined as they are loaded: that is cheaper than to shuffle across units of 128 bits.
      quad q[LANES / 4];
      for (int unit = 0; unit < LANES / 4; unit++) {
        memcpy(&q[unit], lanes[4 * unit + row] + offset + 4 * word, sizeof(quad));
      }
      m[word + row] = JOIN(q);
    }
    transpose(m + word);
  }
}

// Chaining values of the first `count` lanes, one behind the other.
TARGET __attribute__((always_inline)) static inline void store_values(
    const vector h[8], size_t count, uint8_t *values) {
  for (int word = 0; word < 8; word += 4) {
    vector r[4] = {h[word], h[word + 1], h[word + 2], h[word + 3]};
    transpose(r);
    for (size_t lane = 0; lane < LANES; lane++) {
      const uint8_t *words = (const uint8_t *)&r[lane % 4] + lane / 4 * sizeof(quad);
      if (lane < count) memcpy(values + CV_BYTES * lane + 4 * word, words, sizeof(quad));
    }
  }
}

TARGET void KERNEL(const uint8_t *inputs, size_t count, size_t last_bytes, const bs_blake3_shape *shape,
                   uint8_t *values) {
  size_t input_bytes = shape->block_count * BLOCK_BYTES;
  // Lanes beyond the last input repeat the first: cheaper than a narrower kernel for every remainder.
  const uint8_t *lanes[LANES];
  uint32_t low[LANES], high[LANES];
  for (size_t lane = 0; lane < LANES; lane++) {
    lanes[lane] = inputs + (lane < count ? lane : 0) * input_bytes;
    uint64_t counter = shape->counter + lane * shape->counter_step;
    low[lane] = (uint32_t)counter;
    high[lane] = (uint32_t)(counter >> 32);
  }
  // A short last leaf is hashed beside the full ones. Its value is taken after the block that it ends in;
  // from there on its lane runs over zeros, for nothing.
  size_t last = count - 1, short_end = shape->block_count;
  uint8_t padded[LEAF_BYTES];
  uint32_t short_value[8];
  if (last_bytes < input_bytes) {
    memcpy(padded, lanes[last], last_bytes);
    memset(padded + last_bytes, 0, LEAF_BYTES - last_bytes);
    lanes[last] = padded;
    short_end = (last_bytes - 1) / BLOCK_BYTES;
  }
  vector counter_low, counter_high, zero = {0};
  memcpy(&counter_low, low, sizeof(vector));
  memcpy(&counter_high, high, sizeof(vector));
  vector h[8] = {zero + IV0, zero + IV1, zero + IV2, zero + IV3,
                 zero + IV4, zero + IV5, zero + IV6, zero + IV7};
  for (size_t block = 0; block < shape->block_count; block++) {
    uint32_t flags = shape->flags | (block == 0 ? shape->first : 0) |
                     (block + 1 == shape->block_count ? shape->last : 0);
    vector m[16];
    load_message(lanes, block * BLOCK_BYTES, m);
    vector v0 = h[0], v1 = h[1], v2 = h[2], v3 = h[3], v4 = h[4], v5 = h[5], v6 = h[6], v7 = h[7];
    vector v8 = zero + IV0, v9 = zero + IV1, v10 = zero + IV2, v11 = zero + IV3;
    vector v12 = counter_low, v13 = counter_high, v14 = zero + (uint32_t)BLOCK_BYTES, v15 = zero + flags;
    if (block == short_end) {
      v14[last] = (uint32_t)(last_bytes - block * BLOCK_BYTES);
      v15[last] |= shape->last;
    }
    SEVEN_ROUNDS;
    h[0] = v0 ^ v8;
    h[1] = v1 ^ v9;
    h[2] = v2 ^ v10;
    h[3] = v3 ^ v11;
    h[4] = v4 ^ v12;
    h[5] = v5 ^ v13;
    h[6] = v6 ^ v14;
    h[7] = v7 ^ v15;
    if (block == short_end) {
      for (int i = 0; i < 8; i++) short_value[i] = h[i][last];
    }
  }
  store_values(h, count, values);
  if (short_end < shape->block_count) memcpy(values + CV_BYTES * last, short_value, CV_BYTES);
}
