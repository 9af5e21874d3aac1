#include "bs_probe.h"

enum { sample_count = 64 };

static uint32_t square_sum(const uint16_t even[256], const uint16_t odd[256]) {
  uint32_t sum = 0;
  for (size_t v = 0; v < 256; v++) {
    const uint32_t n = (uint32_t)even[v] + odd[v];
    sum += n * n;
  }
  return sum;
}

uint32_t bs_probe_square_sum(const void *bytes, size_t count, size_t sampled_count) {
  // Two histograms, so that a run of equal bytes does not wait for its own store.
  uint16_t even[256] = {0}, odd[256] = {0};
  const uint8_t *p = bytes;
  if (count <= sampled_count) {
    for (size_t i = 0; i + 2 <= count; i += 2) {
      even[p[i]]++;
      odd[p[i + 1]]++;
    }
    if (count % 2 != 0) even[p[count - 1]]++;
    return square_sum(even, odd);
  }
  const size_t sample_bytes = sampled_count / sample_count;
  const size_t step = (count - sample_bytes) / (sample_count - 1);
  for (size_t i = 0; i < sample_count; i++) {
    const uint8_t *sample = p + i * step;
    for (size_t j = 0; j < sample_bytes; j += 2) {
      even[sample[j]]++;
      odd[sample[j + 1]]++;
    }
  }
  return square_sum(even, odd);
}
