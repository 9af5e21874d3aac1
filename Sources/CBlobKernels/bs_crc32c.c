#include "bs_crc32c.h"

#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "bs_crc32c_table.h"

// The polynomial 0x1EDC6F41, bits reflected: the top bit is the coefficient of x^0.
#define POLYNOMIAL 0x82F63B78u

uint32_t bs_crc32c_table(uint32_t seed, const void *bytes, size_t count) {
  const uint8_t *p = bytes;
  uint32_t crc = ~seed;
  for (size_t i = 0; i < count; i++) crc = (crc >> 8) ^ table[(crc ^ p[i]) & 0xFF];
  return ~crc;
}

#if defined(__x86_64__)
#define HARDWARE __attribute__((target("sse4.2")))
#define STEP_8(crc, word) ((uint32_t)__builtin_ia32_crc32di((crc), (word)))
#define STEP_1(crc, byte) __builtin_ia32_crc32qi((crc), (byte))
#elif defined(__aarch64__)
#define HARDWARE __attribute__((target("crc")))
#define STEP_8(crc, word) __builtin_arm_crc32cd((crc), (word))
#define STEP_1(crc, byte) __builtin_arm_crc32cb((crc), (byte))
#endif

bool bs_crc32c_is_hardware(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__) && defined(__linux__)
  return (getauxval(AT_HWCAP) & (1ul << 7)) != 0;  // HWCAP_CRC32 of asm/hwcap.h
#elif defined(__aarch64__) && defined(__APPLE__)
  return true;  // every Mac with this architecture has it
#else
  return false;
#endif
}

#if defined(HARDWARE)

// The instruction takes three cycles, but one can begin in each: three stretches of the bytes run side by
// side.
enum { STRETCH_BYTES = 4096 };

// x^(8 * STRETCH_BYTES) and its square, modulo the polynomial: what multiplies a value when so many zero
// bytes follow it.
#define BEHIND_ONE_STRETCH 0x35D73A62u
#define BEHIND_TWO_STRETCHES 0x28461564u

static uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; bit--) {
    product ^= b & (0u - ((a >> bit) & 1));
    b = (b >> 1) ^ (POLYNOMIAL & (0u - (b & 1)));
  }
  return product;
}

HARDWARE static inline uint64_t word_at(const uint8_t *p) {
  uint64_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

HARDWARE static uint32_t hardware(uint32_t seed, const uint8_t *p, size_t count) {
  uint32_t crc = ~seed;
  for (; count >= 3 * STRETCH_BYTES; p += 3 * STRETCH_BYTES, count -= 3 * STRETCH_BYTES) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < STRETCH_BYTES; i += 8) {
      crc = STEP_8(crc, word_at(p + i));
      second = STEP_8(second, word_at(p + STRETCH_BYTES + i));
      third = STEP_8(third, word_at(p + 2 * STRETCH_BYTES + i));
    }
    crc = multiply(crc, BEHIND_TWO_STRETCHES) ^ multiply(second, BEHIND_ONE_STRETCH) ^ third;
  }
  for (; count >= 8; p += 8, count -= 8) crc = STEP_8(crc, word_at(p));
  for (; count > 0; p++, count--) crc = STEP_1(crc, *p);
  return ~crc;
}

#endif

uint32_t bs_crc32c(uint32_t seed, const void *bytes, size_t count) {
#if defined(HARDWARE)
  if (bs_crc32c_is_hardware()) return hardware(seed, bytes, count);
#endif
  return bs_crc32c_table(seed, bytes, count);
}
