// A BLAKE3 kernel of LANES inputs side by side: a template, included once for each width with LANES, KERNEL
// (the function's name) and TARGET (its attributes) defined. Vector i holds word i of every lane, so that
// the rounds are those of a single input; only the message has to be transposed.

#include <stdbool.h>
#include <string.h>

#include "bs_blake3_internal.h"

typedef uint32_t vector __attribute__((vector_size(4 * LANES)));

// Interleaving of two vectors by 32, 64, 128 and 256 bits, within units of 128 bits as the processors like
// it.
#if LANES == 4
#define LOW_32(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_32(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_64(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define HIGH_64(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#elif LANES == 8
#define LOW_32(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH_32(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW_64(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH_64(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW_128(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH_128(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#elif LANES == 16
#define LOW_32(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define HIGH_32(a, b) \
  __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define LOW_64(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH_64(a, b) \
  __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define LOW_128(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
#define HIGH_128(a, b) \
  __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)
#define LOW_256(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define HIGH_256(a, b) \
  __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#endif

// Turns LANES rows of LANES words round their diagonal.
TARGET __attribute__((always_inline)) static inline void transpose(vector *r) {
  for (int q = 0; q < LANES; q += 4) {
    vector low01 = LOW_32(r[q], r[q + 1]), high01 = HIGH_32(r[q], r[q + 1]);
    vector low23 = LOW_32(r[q + 2], r[q + 3]), high23 = HIGH_32(r[q + 2], r[q + 3]);
    r[q] = LOW_64(low01, low23);
    r[q + 1] = HIGH_64(low01, low23);
    r[q + 2] = LOW_64(high01, high23);
    r[q + 3] = HIGH_64(high01, high23);
  }
#if LANES == 8
  for (int k = 0; k < 4; k++) {
    vector a = r[k], b = r[k + 4];
    r[k] = LOW_128(a, b);
    r[k + 4] = HIGH_128(a, b);
  }
#elif LANES == 16
  for (int k = 0; k < 4; k++) {
    vector even01 = LOW_128(r[k], r[k + 4]), odd01 = HIGH_128(r[k], r[k + 4]);
    vector even23 = LOW_128(r[k + 8], r[k + 12]), odd23 = HIGH_128(r[k + 8], r[k + 12]);
    r[k] = LOW_256(even01, even23);
    r[k + 4] = LOW_256(odd01, odd23);
    r[k + 8] = HIGH_256(even01, even23);
    r[k + 12] = HIGH_256(odd01, odd23);
  }
#endif
}

// Word i of the block at each lane's place becomes m[i].
TARGET __attribute__((always_inline)) static inline void load_message(
    const uint8_t *const lanes[LANES], size_t offset, vector m[16]) {
  for (int group = 0; group < 16; group += LANES) {
    for (int lane = 0; lane < LANES; lane++) {
      memcpy(&m[group + lane], lanes[lane] + offset + 4 * group, sizeof(vector));
      // So many streams at once are more than the processor's own prefetcher follows. The address may lie
      // behind the bytes: it is not read.
      if (group == 0) __builtin_prefetch((const void *)((uintptr_t)lanes[lane] + offset + PREFETCH_BYTES));
    }
    transpose(m + group);
  }
}

// Chaining values of the first `count` lanes, one behind the other.
TARGET __attribute__((always_inline)) static inline void store_values(
    const vector h[8], size_t count, uint8_t *values) {
#if LANES == 4
  enum { GROUP_WORDS = 4 };
#else
  enum { GROUP_WORDS = 8 };
#endif
  for (int group = 0; group < 8; group += GROUP_WORDS) {
    // Sixteen lanes transpose a square of which only the upper half is meant.
    vector r[LANES];
    for (int i = 0; i < LANES; i++) r[i] = h[group + i % GROUP_WORDS];
    transpose(r);
    for (size_t lane = 0; lane < LANES; lane++) {
      if (lane < count) memcpy(values + CV_BYTES * lane + 4 * group, &r[lane], 4 * GROUP_WORDS);
    }
  }
}

TARGET void KERNEL(const uint8_t *inputs, size_t count, const bs_blake3_shape *shape, uint8_t *values) {
  // Lanes beyond the last input repeat it: cheaper than a narrower kernel for every remainder.
  const uint8_t *lanes[LANES];
  uint32_t low[LANES], high[LANES];
  for (size_t lane = 0; lane < LANES; lane++) {
    lanes[lane] = inputs + (lane < count ? lane : count - 1) * shape->block_count * BLOCK_BYTES;
    uint64_t counter = shape->counter + lane * shape->counter_step;
    low[lane] = (uint32_t)counter;
    high[lane] = (uint32_t)(counter >> 32);
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
    SEVEN_ROUNDS;
    h[0] = v0 ^ v8;
    h[1] = v1 ^ v9;
    h[2] = v2 ^ v10;
    h[3] = v3 ^ v11;
    h[4] = v4 ^ v12;
    h[5] = v5 ^ v13;
    h[6] = v6 ^ v14;
    h[7] = v7 ^ v15;
  }
  store_values(h, count, values);
}
