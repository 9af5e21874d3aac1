#include "bs_cut.h"

#include <string.h>

// How many bytes before a place the hash needs.
enum { BEHIND = BS_CUT_WINDOW_BYTES - 1 };

static uint32_t word(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// The hash behind the byte at `p`.
static uint32_t hash(const uint8_t *p) {
  return (word(p - 3) + (word(p - 11) << 3)) * BS_CUT_FIRST + (word(p - 19) + (word(p - 35) << 3)) * BS_CUT_SECOND +
         BS_CUT_ADDED;
}

// The first place in bytes[from..<to] whose hash & mask is 0, or `to`. `BEHIND` bytes before `from` can be read.
static size_t find_slowly(const uint8_t *bytes, size_t from, size_t to, uint32_t mask) {
  size_t i = from;
  while (i < to && (hash(bytes + i) & mask) != 0) i++;
  return i;
}

typedef uint8_t bytes32 __attribute__((vector_size(32)));
typedef uint32_t words8 __attribute__((vector_size(32)));

// The words that begin at `p` and the seven places behind it.
static inline __attribute__((always_inline)) void load_words(words8 *words, const uint8_t *p) {
  // Both halves hold the same bytes, because a shuffle stays in its half.
  bytes32 v;
  memcpy(&v, p, 16);
  memcpy((uint8_t *)&v + 16, p, 16);
  *words = (words8)__builtin_shufflevector(v, v, 0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6, 20, 21, 22, 23, 21, 22, 23,
                                           24, 22, 23, 24, 25, 23, 24, 25, 26);
}

// Places that are looked at together, and bytes that are read from the first of them on.
enum { STEP = 32, READ = STEP + 8 };

// The same as `find_slowly`.
static inline __attribute__((always_inline)) size_t find_by_vectors(const uint8_t *bytes, size_t from, size_t to,
                                                                     uint32_t mask) {
  size_t i = from;
  if (i + READ > to) return find_slowly(bytes, i, to, mask);
  // The words of the four lanes before, and then of these: each is needed 8, 16 and 32 places later once more.
  words8 w[8];
  for (size_t lane = 0; lane < 4; lane++) load_words(&w[lane], bytes + i + 8 * lane - 35);
  for (; i + READ <= to; i += STEP) {
    words8 found = {0};
    for (size_t lane = 4; lane < 8; lane++) {
      load_words(&w[lane], bytes + i + 8 * (lane - 4) - 3);
      const words8 hashes = (w[lane] + (w[lane - 1] << 3)) * BS_CUT_FIRST +
                            (w[lane - 2] + (w[lane - 4] << 3)) * BS_CUT_SECOND + BS_CUT_ADDED;
      found |= (words8)((hashes & mask) == 0);
    }
    if (__builtin_reduce_or(found) != 0) return find_slowly(bytes, i, i + STEP, mask);
    for (size_t lane = 0; lane < 4; lane++) w[lane] = w[lane + 4];
  }
  return find_slowly(bytes, i, to, mask);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static size_t find_by_avx2(const uint8_t *bytes, size_t from, size_t to,
                                                           uint32_t mask) {
  return find_by_vectors(bytes, from, to, mask);
}
#endif

static size_t find(const uint8_t *bytes, size_t from, size_t to, uint32_t mask) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") ? find_by_avx2(bytes, from, to, mask) : find_slowly(bytes, from, to, mask);
#elif defined(__aarch64__)
  return find_by_vectors(bytes, from, to, mask);
#else
  return find_slowly(bytes, from, to, mask);
#endif
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// How many of `count` bytes lie before the chunk has `limit` bytes, when it has `begun` at the first of them.
static size_t bytes_until(uint64_t limit, uint64_t begun, size_t count) {
  if (limit <= begun) return 0;
  return limit - begun < count ? (size_t)(limit - begun) : count;
}

// The first place in bytes[from..<to] with a hash that ends the chunk, or `to`. What lies before the bytes is in the
// window.
static size_t find_end(const bs_cut_state *state, const uint8_t *bytes, size_t from, size_t to, uint32_t mask) {
  if (from < smaller(to, BEHIND)) {
    uint8_t joined[2 * BS_CUT_WINDOW_BYTES];
    const size_t joined_end = smaller(to, BEHIND);
    memcpy(joined, state->window, BS_CUT_WINDOW_BYTES);
    memcpy(joined + BS_CUT_WINDOW_BYTES, bytes, joined_end);
    const size_t end =
        find_slowly(joined, BS_CUT_WINDOW_BYTES + from, BS_CUT_WINDOW_BYTES + joined_end, mask) - BS_CUT_WINDOW_BYTES;
    if (end < joined_end || joined_end == to) return end;
    from = joined_end;
  }
  return from < to ? find(bytes, from, to, mask) : to;
}

// The window behind these bytes.
static void move_window(bs_cut_state *state, const uint8_t *bytes, size_t count) {
  const size_t added = smaller(count, BS_CUT_WINDOW_BYTES);
  if (added == 0) return;
  memmove(state->window, state->window + added, BS_CUT_WINDOW_BYTES - added);
  memcpy(state->window + BS_CUT_WINDOW_BYTES - added, bytes + count - added, added);
}

size_t bs_cut_scan(bs_cut_state *state, const bs_cut_rules *rules, const uint8_t *bytes, size_t count, bool *is_end) {
  *is_end = false;
  // The byte that makes the chunk `minimum` long is the first with a test.
  const uint64_t begun = state->count;
  const size_t strict = bytes_until(rules->minimum - 1, begun, count);
  const size_t loose = bytes_until(rules->normal - 1, begun, count);
  const size_t last = bytes_until(rules->maximum, begun, count);

  size_t end = find_end(state, bytes, strict, loose, rules->strict);
  if (end == loose) end = find_end(state, bytes, loose, last, rules->loose);
  if (end < last || begun + last == rules->maximum) {
    *is_end = true;
    *state = (bs_cut_state){0};
    return end < last ? end + 1 : last;
  }
  move_window(state, bytes, last);
  state->count = begun + last;
  return last;
}
