#ifndef BS_GEAR_H
#define BS_GEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The inner loop of the chunker: gear hash, after FastCDC (Xia et al., USENIX ATC 2016, section 3).
//
// The hash after a byte is 2 * hash + gear[byte], modulo 2^64, so that it depends on the last 64 bytes
// alone. A chunk may end behind any byte, from its `minimum`th on, at which hash & mask is 0, and ends at
// its `maximum`th in any case. The mask is `strict` while the chunk is shorter than `normal`, and `loose`
// from there on.
//
// Where chunks end decides what is found twice: neither the table nor these rules may ever change.

// How many bytes the hash depends on. `minimum` is not smaller, so that a cut point does not depend on
// where the chunk began beyond the three sizes.
enum { BS_GEAR_WINDOW_BYTES = 64 };

// 64 <= minimum <= normal <= maximum.
typedef struct {
  uint64_t minimum, normal, maximum;
  uint64_t strict, loose;
} bs_gear_rules;

// The chunk under way: zero at its start.
typedef struct {
  uint64_t hash;
  uint64_t count;
} bs_gear_state;

// Takes bytes up to the end of the chunk, or all of them if it does not end here, and returns how many it
// took. At an end `*is_end` is true and the state is that of a new chunk. Cut points do not depend on how
// the bytes are divided into calls.
size_t bs_gear_scan(bs_gear_state *state, const bs_gear_rules *rules, const uint8_t *bytes, size_t count,
                    bool *is_end);

// Entry `byte` of the gear table: output number `byte` of SplitMix64 (Steele et al., OOPSLA 2014) seeded with
// `BS_GEAR_SEED`.
uint64_t bs_gear_entry(uint8_t byte);

// "blobgear" in ASCII.
#define BS_GEAR_SEED 0x626C6F6267656172ull

#endif
