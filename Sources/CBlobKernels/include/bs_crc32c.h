#ifndef BS_CRC32C_H
#define BS_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// CRC-32C (Castagnoli, RFC 3720 section 12.1): of "123456789" it is 0xE3069283. `seed` is 0, or the value for
// the bytes before these.
uint32_t bs_crc32c(uint32_t seed, const void *bytes, size_t count);

// The same by a table, on any processor. Tests hold the two against each other.
uint32_t bs_crc32c_table(uint32_t seed, const void *bytes, size_t count);

// Whether `bs_crc32c` uses instructions made for it.
bool bs_crc32c_is_hardware(void);

#endif
