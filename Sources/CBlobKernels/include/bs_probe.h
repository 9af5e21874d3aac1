#pragma once
#include <stddef.h>
#include <stdint.h>

// Takes 64 samples of 64 bytes, evenly spread over the bytes, or all of them if there are fewer than 4096, and
// returns the sum of the squared counts of the 256 byte values: n * n / 256 + n on average for noise, n * n if
// all n are equal.
uint32_t bs_probe_square_sum(const void *bytes, size_t count);
