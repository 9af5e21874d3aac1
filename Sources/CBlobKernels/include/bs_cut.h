#ifndef BS_CUT_H
#define BS_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The inner loop of the chunker: a hash of 16 of the last 36 bytes that vector units compute for eight places at once.
//
// W(d) is the 4 bytes, little-endian, whose first lies d bytes before the last byte. The hash behind a byte is
//
//   (W(3) + (W(11) << 3)) * FIRST + (W(19) + (W(35) << 3)) * SECOND + ADDED, modulo 2^32.
//
// The words lie apart because words side by side depend on each other: then too many places of a text have equal hashes.
// They lie multiples of 8 apart so that what was loaded for one place serves three others. ADDED keeps zeros, which are
// frequent, from hashing to zero.
//
// A chunk may end behind any byte, from its `minimum`th on, at which hash & mask is 0, and ends at its `maximum`th in any
// case. The mask is `strict` while the chunk is shorter than `normal`, and `loose` from there on (normalised chunking,
// FastCDC, Xia et al., USENIX ATC 2016, section 3.4).
//
// Where chunks end decides what is found twice: neither the numbers nor these rules may ever change.

// FIRST and SECOND are two of the primes of xxHash32 (Collet); ADDED is the golden ratio's next 32 bits.
#define BS_CUT_FIRST 0x9E3779B1u
#define BS_CUT_SECOND 0x85EBCA77u
#define BS_CUT_ADDED 0x7F4A7C15u

// How many bytes the hash depends on. `minimum` is not smaller, so that a cut point does not depend on
// where the chunk began beyond the three sizes.
enum { BS_CUT_WINDOW_BYTES = 36 };

// BS_CUT_WINDOW_BYTES <= minimum <= normal <= maximum.
typedef struct {
  uint64_t minimum, normal, maximum;
  uint32_t strict, loose;
} bs_cut_rules;

// The chunk under way: zero at its start. The window holds its last bytes.
typedef struct {
  uint64_t count;
  uint8_t window[BS_CUT_WINDOW_BYTES];
} bs_cut_state;

// Takes bytes up to the end of the chunk, or all of them if it does not end here, and returns how many it
// took. At an end `*is_end` is true and the state is that of a new chunk. Cut points do not depend on how
// the bytes are divided into calls.
size_t bs_cut_scan(bs_cut_state *state, const bs_cut_rules *rules, const uint8_t *bytes, size_t count, bool *is_end);

#endif
