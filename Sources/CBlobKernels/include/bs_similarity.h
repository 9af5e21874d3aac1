#pragma once
#include <stddef.h>
#include <stdint.h>

enum { bs_super_feature_count = 3 };

// Works out the super-features of a chunk and returns how many samples they rest on: none have a meaning
// if there are too few.
size_t bs_super_features(const void *bytes, size_t count, uint32_t out[bs_super_feature_count]);
