#pragma once
#include <stddef.h>
#include <stdint.h>

// Takes 64 samples of 64 bytes, evenly spread over at least 4096 bytes, and returns the sum of the squared
// counts of the 256 byte values: 4096^2 / 256 + 4096 on average for noise, 4096^2 if all are equal.
uint32_t bs_probe_square_sum(const void *bytes, size_t count);
