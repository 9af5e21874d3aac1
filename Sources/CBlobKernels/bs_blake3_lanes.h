// A BLAKE3 kernel of one width: a template, included once for each with LANES (words in a vector), KERNEL (the
// function's name), TARGET (its attributes) and LANES_ROUND (how it writes a round) defined. It hashes in two
// ways:
//
// - In lanes: vector i holds word i of LANES inputs, so that the rounds are those of a single input. Only the
//   message has to be transposed. This is the fastest for many inputs.
// - In rows: vector i holds row i of the state, four words, of LANES / 4 inputs. It takes a quarter of the
//   instructions for as many inputs. They wait for each other, and still a block takes less than half the time.

#include <stdbool.h>
#include <string.h>

#include "bs_blake3_internal.h"

typedef uint32_t quad __attribute__((vector_size(16)));
typedef uint32_t vector __attribute__((vector_size(4 * LANES)));

// Interleaving of two vectors by 32 and 64 bits, within units of 128 bits as the processors like it; and one
// vector of the quads at `q`, of all or of the first three.
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
#define PAIR_OF_ONE(a) __builtin_shufflevector(a, a, 0, 1, 2, 3, -1, -1, -1, -1)
#define JOIN_3(q)                                                                                    \
  __builtin_shufflevector(PAIR((q)[0], (q)[1]), PAIR_OF_ONE((q)[2]), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \
                          10, 11, -1, -1, -1, -1)
#endif
#ifndef JOIN_3
#define JOIN_3 JOIN
#endif

// One vector of the same quad in every unit.
#define REPEAT(q) JOIN(((const quad[4]){(q), (q), (q), (q)}))

// Turns the squares of four rows and four words, one for each unit of 128 bits, round their diagonals.
TARGET __attribute__((always_inline)) static inline void transpose(vector r[4]) {
  vector low01 = LOW_32(r[0], r[1]), high01 = HIGH_32(r[0], r[1]);
  vector low23 = LOW_32(r[2], r[3]), high23 = HIGH_32(r[2], r[3]);
  r[0] = LOW_64(low01, low23);
  r[1] = HIGH_64(low01, low23);
  r[2] = LOW_64(high01, high23);
  r[3] = HIGH_64(high01, high23);
}

// Word i of the block at each lane's place becomes m[i]. Only the first 4 * `units` lanes are loaded.
TARGET __attribute__((always_inline)) static inline void load_message(
    const uint8_t *const lanes[LANES], size_t units, size_t offset, vector m[16]) {
  // So many streams at once are more than the processor's own prefetcher follows. The address may lie
  // behind the bytes: it is not read.
  for (size_t lane = 0; lane < 4 * units; lane++) {
    __builtin_prefetch((const void *)((uintptr_t)lanes[lane] + offset + PREFETCH_BYTES));
  }
  for (int word = 0; word < 16; word += 4) {
    for (size_t row = 0; row < 4; row++) {
      // Quads are joined as they are loaded: that is cheaper than to shuffle across units of 128 bits.
      quad q[LANES / 4];
      for (size_t unit = 0; unit < LANES / 4; unit++) {
        if (unit < units) memcpy(&q[unit], lanes[4 * unit + row] + offset + 4 * word, sizeof(quad));
      }
      m[word + row] = units == 3 ? JOIN_3(q) : JOIN(q);
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

// Words of `a` (0 to 3) and `b` (4 to 7), the same within every unit of 128 bits.
#define WORD(i, unit) (((i) & 3) + 4 * (unit) + ((i) < 4 ? 0 : LANES))
#define WORDS(i, j, k, l, unit) WORD(i, unit), WORD(j, unit), WORD(k, unit), WORD(l, unit)
#if LANES == 4
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, WORDS(i, j, k, l, 0))
#elif LANES == 8
#define SHUFFLE(a, b, i, j, k, l) \
  __builtin_shufflevector(a, b, WORDS(i, j, k, l, 0), WORDS(i, j, k, l, 1))
#elif LANES == 16
#define SHUFFLE(a, b, i, j, k, l)                                                              \
  __builtin_shufflevector(a, b, WORDS(i, j, k, l, 0), WORDS(i, j, k, l, 1), WORDS(i, j, k, l, 2), \
                          WORDS(i, j, k, l, 3))
#endif

enum { ROWS = LANES / 4 };

// Loads the message vectors of the first round from the block at each place: words (0, 2, 4, 6) and (1, 3, 5, 7)
// for the columns, (14, 8, 10, 12) and (15, 9, 11, 13) for the diagonals.
TARGET __attribute__((always_inline)) static inline void load_rows(
    const uint8_t *const inputs[ROWS], size_t offset, vector m[4]) {
  vector w[4];
  for (int word = 0; word < 4; word++) {
    quad q[ROWS];
    for (int unit = 0; unit < ROWS; unit++) {
      memcpy(&q[unit], inputs[unit] + offset + 16 * word, sizeof(quad));
    }
    w[word] = JOIN(q);
  }
  m[0] = SHUFFLE(w[0], w[1], 0, 2, 4, 6);
  m[1] = SHUFFLE(w[0], w[1], 1, 3, 5, 7);
  m[2] = SHUFFLE(w[2], w[3], 6, 0, 2, 4);
  m[3] = SHUFFLE(w[2], w[3], 7, 1, 3, 5);
}

// Turns the message vectors of a round into those of the next: the permutation of table 2.
TARGET __attribute__((always_inline)) static inline void permute_rows(vector m[4]) {
  vector a = m[0], b = m[1], c = m[2], d = m[3];
  vector cd = SHUFFLE(c, d, 2, 2, 7, 7), aa = SHUFFLE(a, a, 3, 3, 0, 0);
  vector db = SHUFFLE(d, b, 0, 1, 4, 5), bd = SHUFFLE(b, d, 2, 6, 3, 7);
  vector dbc = SHUFFLE(db, c, 0, 1, 2, 7), cbd = SHUFFLE(c, bd, 0, 4, 1, 5);
  m[0] = SHUFFLE(a, b, 1, 5, 7, 2);
  m[1] = SHUFFLE(aa, cd, 0, 5, 2, 7);
  m[2] = SHUFFLE(dbc, dbc, 0, 2, 3, 1);
  m[3] = SHUFFLE(cbd, cbd, 2, 3, 1, 0);
}

// One round in rows: columns, then, with three rows turned, diagonals. The second row stays where it is, because
// the next step waits for it.
#define ROWS_ROUND                       \
  do {                                   \
    QUARTER(r0, r1, r2, r3, m[0], m[1]); \
    r0 = SHUFFLE(r0, r0, 3, 0, 1, 2);    \
    r2 = SHUFFLE(r2, r2, 1, 2, 3, 0);    \
    r3 = SHUFFLE(r3, r3, 2, 3, 0, 1);    \
    QUARTER(r0, r1, r2, r3, m[2], m[3]); \
    r0 = SHUFFLE(r0, r0, 1, 2, 3, 0);    \
    r2 = SHUFFLE(r2, r2, 3, 0, 1, 2);    \
    r3 = SHUFFLE(r3, r3, 2, 3, 0, 1);    \
  } while (0)

// Chaining values of the rows `first`..<`count`, each at its place.
TARGET __attribute__((always_inline)) static inline void store_rows(
    const vector r[2], size_t first, size_t count, uint8_t *values) {
  for (size_t row = 0; row < ROWS; row++) {
    if (row < first || row >= count) continue;
    memcpy(values + CV_BYTES * row, (const uint8_t *)&r[0] + row * sizeof(quad), sizeof(quad));
    memcpy(values + CV_BYTES * row + sizeof(quad), (const uint8_t *)&r[1] + row * sizeof(quad), sizeof(quad));
  }
}

// A short last leaf is hashed beside full ones. Its value is taken after the block that it ends in, of which
// `padded` is a copy; from there on it repeats that block, for nothing. If it is full, `end` is `block_count`.
typedef struct {
  size_t block_count, end;
  uint32_t end_bytes;
  uint8_t padded[BLOCK_BYTES];
} ending;

static inline void pad_end(ending *e, const uint8_t *last, size_t last_bytes, const bs_blake3_shape *shape) {
  e->block_count = shape->block_count;
  e->end = e->block_count;
  if (last_bytes == e->block_count * BLOCK_BYTES) return;
  e->end = last_block(last_bytes);
  e->end_bytes = (uint32_t)(last_bytes - e->end * BLOCK_BYTES);
  memset(e->padded, 0, BLOCK_BYTES);
  if (e->end_bytes > 0) memcpy(e->padded, last + e->end * BLOCK_BYTES, e->end_bytes);
}

// The place from which reading at `offset` gives the padded block.
static inline const uint8_t *place_of_end(const ending *e, size_t offset) {
  return (const uint8_t *)((uintptr_t)e->padded - offset);
}

static inline uint32_t flags_of(const bs_blake3_shape *shape, size_t block) {
  return (uint32_t)shape->flags | (block == 0 ? shape->first : 0) |
         (block + 1 == shape->block_count ? shape->last : 0);
}

TARGET static void hash_rows(const uint8_t *inputs, size_t count, size_t last_bytes,
                             const bs_blake3_shape *shape, uint8_t *values) {
  // Rows beyond the last input repeat it.
  const uint8_t *places[ROWS];
  uint32_t words[LANES];
  for (size_t row = 0; row < ROWS; row++) {
    size_t input = row < count ? row : count - 1;
    places[row] = inputs + input * shape->block_count * BLOCK_BYTES;
    uint64_t counter = shape->counter + input * shape->counter_step;
    words[4 * row] = (uint32_t)counter;
    words[4 * row + 1] = (uint32_t)(counter >> 32);
    words[4 * row + 2] = BLOCK_BYTES;
    words[4 * row + 3] = 0;
  }
  ending e;
  pad_end(&e, places[count - 1], last_bytes, shape);
  const quad iv[2] = {{IV0, IV1, IV2, IV3}, {IV4, IV5, IV6, IV7}}, flag_word = {0, 0, 0, ~0u};
  const vector zero = {0}, third = REPEAT(iv[0]), flag_words = REPEAT(flag_word);
  vector r[2] = {REPEAT(iv[0]), REPEAT(iv[1])}, end_r[2], fourth;
  memcpy(&fourth, words, sizeof fourth);
  for (size_t block = 0; block < e.block_count; block++) {
    size_t offset = block * BLOCK_BYTES;
    vector r0 = r[0], r1 = r[1], r2 = third, r3 = fourth | (flag_words & (zero + flags_of(shape, block)));
    if (block >= e.end) {
      // The rows beyond the last input end with it: nothing lies behind its end.
      for (size_t row = count - 1; row < ROWS; row++) {
        places[row] = place_of_end(&e, offset);
        r3[4 * row + 2] = e.end_bytes;
        r3[4 * row + 3] |= shape->last;
      }
    }
    vector m[4];
    load_rows(places, offset, m);
    ROWS_ROUND;
    permute_rows(m);
    ROWS_ROUND;
    permute_rows(m);
    ROWS_ROUND;
    permute_rows(m);
    ROWS_ROUND;
    permute_rows(m);
    ROWS_ROUND;
    permute_rows(m);
    ROWS_ROUND;
    permute_rows(m);
    ROWS_ROUND;
    r[0] = r0 ^ r2;
    r[1] = r1 ^ r3;
    if (block == e.end) memcpy(end_r, r, sizeof r);
  }
  store_rows(r, 0, count, values);
  if (e.end < e.block_count) store_rows(end_r, count - 1, count, values);
}

TARGET __attribute__((always_inline)) static inline void hash_lanes(
    const uint8_t *inputs, size_t count, size_t units, size_t last_bytes, const bs_blake3_shape *shape,
    uint8_t *values) {
  size_t input_bytes = shape->block_count * BLOCK_BYTES, last = count - 1;
  // Lanes beyond the last input repeat the first: cheaper than a narrower kernel for every remainder.
  const uint8_t *lanes[LANES];
  uint32_t low[LANES], high[LANES];
  for (size_t lane = 0; lane < LANES; lane++) {
    lanes[lane] = inputs + (lane < count ? lane : 0) * input_bytes;
    uint64_t counter = shape->counter + lane * shape->counter_step;
    low[lane] = (uint32_t)counter;
    high[lane] = (uint32_t)(counter >> 32);
  }
  ending e;
  pad_end(&e, lanes[last], last_bytes, shape);
  vector end_h[8], counter_low, counter_high, zero = {0};
  memcpy(&counter_low, low, sizeof(vector));
  memcpy(&counter_high, high, sizeof(vector));
  vector h[8] = {zero + IV0, zero + IV1, zero + IV2, zero + IV3,
                 zero + IV4, zero + IV5, zero + IV6, zero + IV7};
  for (size_t block = 0; block < e.block_count; block++) {
    size_t offset = block * BLOCK_BYTES;
    if (block >= e.end) lanes[last] = place_of_end(&e, offset);
    vector m[16];
    load_message(lanes, units, offset, m);
    vector v0 = h[0], v1 = h[1], v2 = h[2], v3 = h[3], v4 = h[4], v5 = h[5], v6 = h[6], v7 = h[7];
    vector v8 = zero + IV0, v9 = zero + IV1, v10 = zero + IV2, v11 = zero + IV3;
    vector v12 = counter_low, v13 = counter_high;
    vector v14 = zero + (uint32_t)BLOCK_BYTES, v15 = zero + flags_of(shape, block);
    if (block == e.end) {
      v14[last] = e.end_bytes;
      v15[last] |= shape->last;
    }
    SEVEN_ROUNDS(LANES_ROUND);
    h[0] = v0 ^ v8;
    h[1] = v1 ^ v9;
    h[2] = v2 ^ v10;
    h[3] = v3 ^ v11;
    h[4] = v4 ^ v12;
    h[5] = v5 ^ v13;
    h[6] = v6 ^ v14;
    h[7] = v7 ^ v15;
    if (block == e.end) memcpy(end_h, h, sizeof h);
  }
  store_values(h, count, values);
  if (e.end == e.block_count) return;
  for (size_t i = 0; i < 8; i++) {
    memcpy(values + CV_BYTES * last + 4 * i, (const uint8_t *)&end_h[i] + 4 * last, 4);
  }
}

TARGET void KERNEL(const uint8_t *inputs, size_t count, size_t last_bytes, const bs_blake3_shape *shape,
                   uint8_t *values) {
  if (count <= ROWS) {
    hash_rows(inputs, count, last_bytes, shape, values);
  } else if (LANES == 16 && count <= 12) {
    hash_lanes(inputs, count, 3, last_bytes, shape, values);
  } else {
    hash_lanes(inputs, count, LANES / 4, last_bytes, shape, values);
  }
}
