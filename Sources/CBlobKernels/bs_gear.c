#include "bs_gear.h"

#include "bs_gear_table.h"

// Rolls over bytes[from..<to] without looking for an end: they only fill the window.
static uint64_t roll(uint64_t hash, const uint8_t *bytes, size_t from, size_t to) {
  for (size_t i = from; i < to; i++) hash = (hash << 1) + gear[bytes[i]];
  return hash;
}

// Rolls on until the chunk may end behind a byte, and returns the number of bytes up to and with that one; or
// `to` + 1 if there is none.
static size_t roll_to_end(uint64_t *hash, const uint8_t *bytes, size_t from, size_t to, uint64_t mask) {
  uint64_t h = *hash;
  for (size_t i = from; i < to; i++) {
    h = (h << 1) + gear[bytes[i]];
    if ((h & mask) == 0) return i + 1;
  }
  *hash = h;
  return to + 1;
}

// How many of `count` bytes lie before the chunk has `limit` bytes, when it has `begun` at the first of them.
static size_t bytes_until(uint64_t limit, uint64_t begun, size_t count) {
  if (limit <= begun) return 0;
  return limit - begun < count ? (size_t)(limit - begun) : count;
}

size_t bs_gear_scan(bs_gear_state *state, const bs_gear_rules *rules, const uint8_t *bytes, size_t count,
                    bool *is_end) {
  *is_end = false;
  // The byte that makes the chunk `minimum` long is the first with a test; the 63 before it fill its
  // window, and those before them are not even hashed.
  uint64_t begun = state->count;
  size_t hashed = bytes_until(rules->minimum - BS_GEAR_WINDOW_BYTES, begun, count);
  size_t strict = bytes_until(rules->minimum - 1, begun, count);
  size_t loose = bytes_until(rules->normal - 1, begun, count);
  size_t last = bytes_until(rules->maximum, begun, count);

  uint64_t hash = roll(state->hash, bytes, hashed, strict);
  size_t end = roll_to_end(&hash, bytes, strict, loose, rules->strict);
  if (end > loose) end = roll_to_end(&hash, bytes, loose, last, rules->loose);
  if (end > last && begun + last == rules->maximum) end = last;
  if (end <= last) {
    *is_end = true;
    *state = (bs_gear_state){0};
    return end;
  }
  *state = (bs_gear_state){.hash = hash, .count = begun + last};
  return last;
}

uint64_t bs_gear_entry(uint8_t byte) { return gear[byte]; }
