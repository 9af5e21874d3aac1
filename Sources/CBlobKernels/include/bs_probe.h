#pragma once
#include <stddef.h>
#include <stdint.h>

// Takes 64 samples, evenly spread over the bytes and together `sampled_count` long, or all bytes if there are no more.
// `sampled_count` is a multiple of 128 and at most 65535. Returns the sum of the squared counts of the 256 byte values:
// n * n / 256 + n on average for noise, n * n if all n are equal.
uint32_t bs_probe_square_sum(const void *bytes, size_t count, size_t sampled_count);
