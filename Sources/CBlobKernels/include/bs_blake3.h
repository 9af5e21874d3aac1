#ifndef BS_BLAKE3_H
#define BS_BLAKE3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// BLAKE3, hash mode, 256 bits of output, after "BLAKE3: one function, fast everywhere" (O'Connor, Aumasson,
// Neves, Wilcox-O'Hearn, 2020), section 2. What the paper calls a chunk is a leaf here: a chunk is something
// else in this package.
//
// No function allocates, and none keeps state outside its arguments: they may run on any number of threads.

// One way to compute the same digest. A wider level needs a processor that has it.
enum {
  BS_BLAKE3_PORTABLE = 0,  // one leaf at a time, plain C
  BS_BLAKE3_LANES4 = 1,    // SSE4.1 on x86-64, NEON on arm64
  BS_BLAKE3_LANES8 = 2,    // AVX2
  BS_BLAKE3_LANES16 = 3,   // AVX-512
};

// The widest level that this processor and its system support.
int bs_blake3_level_best(void);

// Whether this processor can run that level.
bool bs_blake3_level_supported(int level);

// The digest of `count` bytes, by the best level.
void bs_blake3(const void *bytes, size_t count, uint8_t digest[32]);

// The same by a given level, which must be supported: tests check all of them.
void bs_blake3_at_level(int level, const void *bytes, size_t count, uint8_t digest[32]);

// A digest under way. The caller provides `bs_blake3_state_size()` bytes, aligned to 16; the state owns
// nothing outside them, so that copying them copies the state.
typedef struct bs_blake3_state bs_blake3_state;

size_t bs_blake3_state_size(void);

// Begins a digest at a supported level.
void bs_blake3_init(bs_blake3_state *state, int level);

// Appends bytes. Updates of 16 KiB and up are not copied.
void bs_blake3_update(bs_blake3_state *state, const void *bytes, size_t count);

// The digest of all bytes so far. The state stays as it is, and can go on.
void bs_blake3_finalize(const bs_blake3_state *state, uint8_t digest[32]);

#endif
