// What the files of the BLAKE3 kernel share. Words and sections are those of the paper named in bs_blake3.h.

#ifndef BS_BLAKE3_INTERNAL_H
#define BS_BLAKE3_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels read words of the message as they lie in memory: a little-endian machine is needed"
#endif

enum {
  BLOCK_BYTES = 64,
  LEAF_BYTES = 1024,
  LEAF_BLOCKS = LEAF_BYTES / BLOCK_BYTES,
  CV_BYTES = 32,
  PREFETCH_BYTES = 3 * BLOCK_BYTES,
};

// Domain flags, table 3.
enum {
  CHUNK_START = 1,
  CHUNK_END = 2,
  PARENT = 4,
  ROOT = 8,
};

// The first words of the fractional parts of square roots, as in SHA-256; table 1.
#define IV0 0x6A09E667u
#define IV1 0xBB67AE85u
#define IV2 0x3C6EF372u
#define IV3 0xA54FF53Au
#define IV4 0x510E527Fu
#define IV5 0x9B05688Cu
#define IV6 0x1F83D9ABu
#define IV7 0x5BE0CD19u

#define ROTATE_RIGHT(x, n) (((x) >> (n)) | ((x) << (32 - (n))))

// The quarter round, section 2.2, on words or on vectors of words. The message word is added first: it is
// there before `b` is.
#define QUARTER(a, b, c, d, x, y) \
  do {                            \
    a += (x);                     \
    a += b;                       \
    d ^= a;                       \
    d = ROTATE_RIGHT(d, 16);      \
    c += d;                       \
    b ^= c;                       \
    b = ROTATE_RIGHT(b, 12);      \
    a += (y);                     \
    a += b;                       \
    d ^= a;                       \
    d = ROTATE_RIGHT(d, 8);       \
    c += d;                       \
    b ^= c;                       \
    b = ROTATE_RIGHT(b, 7);       \
  } while (0)

// One round over v0…v15 with the message words m[i]…: columns, then diagonals.
#define ROUND(a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q) \
  do {                                                        \
    QUARTER(v0, v4, v8, v12, m[a], m[b]);                     \
    QUARTER(v1, v5, v9, v13, m[c], m[d]);                     \
    QUARTER(v2, v6, v10, v14, m[e], m[f]);                    \
    QUARTER(v3, v7, v11, v15, m[g], m[h]);                    \
    QUARTER(v0, v5, v10, v15, m[i], m[j]);                    \
    QUARTER(v1, v6, v11, v12, m[k], m[l]);                    \
    QUARTER(v2, v7, v8, v13, m[n], m[o]);                     \
    QUARTER(v3, v4, v9, v14, m[p], m[q]);                     \
  } while (0)

// The same with four quarter rounds side by side, each half at a time. With 32 registers it is a twentieth
// faster; with 16 it is slower.
#define ROUND_ABREAST(a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q)                    \
  do {                                                                                   \
    HALVES(v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15, a, c, e, g, 16, 12);     \
    HALVES(v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15, b, d, f, h, 8, 7);       \
    HALVES(v5, v6, v7, v4, v10, v11, v8, v9, v15, v12, v13, v14, i, k, n, p, 16, 12);     \
    HALVES(v5, v6, v7, v4, v10, v11, v8, v9, v15, v12, v13, v14, j, l, o, q, 8, 7);       \
  } while (0)
#define HALVES(b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3, w, x, y, z, r, s) \
  do {                                                                          \
    v0 += m[w], v1 += m[x], v2 += m[y], v3 += m[z];                             \
    v0 += b0, v1 += b1, v2 += b2, v3 += b3;                                     \
    d0 ^= v0, d1 ^= v1, d2 ^= v2, d3 ^= v3;                                     \
    ROTATE_4(d0, d1, d2, d3, r);                                                \
    c0 += d0, c1 += d1, c2 += d2, c3 += d3;                                     \
    b0 ^= c0, b1 ^= c1, b2 ^= c2, b3 ^= c3;                                     \
    ROTATE_4(b0, b1, b2, b3, s);                                                \
  } while (0)
#define ROTATE_4(w, x, y, z, n) \
  w = ROTATE_RIGHT(w, n), x = ROTATE_RIGHT(x, n), y = ROTATE_RIGHT(y, n), z = ROTATE_RIGHT(z, n)

// Seven rounds. Each row is the one before it under the permutation of table 2, written out so that every
// index is a constant, also where the compiler does not optimise.
#define SEVEN_ROUNDS(ROUND)                                             \
  do {                                                                  \
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);        \
    ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8);        \
    ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1);        \
    ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6);        \
    ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4);        \
    ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7);        \
    ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13);        \
  } while (0)

// What a run of inputs of equal shape has in common: leaves (16 blocks, counted) or parents (one block, not
// counted). `flags` stand on every block, `first` and `last` only on those.
typedef struct {
  size_t block_count;
  uint64_t counter;
  uint32_t counter_step;
  uint8_t flags, first, last;
} bs_blake3_shape;

// The block that an input of `count` bytes ends in; an empty one has one, too.
static inline size_t last_block(size_t count) { return count > 0 ? (count - 1) / BLOCK_BYTES : 0; }

// Hashes `count` inputs that lie one behind the other, at least one and at most as many as the kernel has
// lanes, into as many chaining values. The last input has `last_bytes`: a leaf may be short, and a single one
// empty. The values may overwrite the inputs.
typedef void bs_blake3_kernel(const uint8_t *inputs, size_t count, size_t last_bytes,
                              const bs_blake3_shape *shape, uint8_t *values);

bs_blake3_kernel bs_blake3_lanes4, bs_blake3_lanes8, bs_blake3_lanes8_avx512, bs_blake3_lanes16;

#endif
