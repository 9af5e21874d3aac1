#include "bs_crc32c.h"

#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "bs_crc32c_table.h"

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
// side. To join them takes some 50 cycles, so that long stretches come first.
enum { STRETCH_BYTES_MAX = 4096, STRETCH_BYTES_MIN = 256 };

// What moves a value over 256, 512… 8,192 bytes: x^(8 * count - 33) modulo the polynomial. The instruction that
// reduces the product multiplies it by x^32, and a product of reflected values lacks another x.
static const uint32_t behind_bytes[] = {0xB9E02B86, 0xDD7E3B0C, 0x170076FA, 0xA51B6135, 0x82F89C77, 0x54A86326};

// The product of polynomials, not yet reduced.
static uint64_t multiply(uint32_t a, uint32_t b) {
  uint64_t product = 0;
  for (int bit = 0; bit < 32; bit++) product ^= (uint64_t)b << bit & (0u - (uint64_t)((a >> bit) & 1));
  return product;
}

HARDWARE static inline uint64_t word_at(const uint8_t *p) {
  uint64_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

HARDWARE static uint32_t hardware(uint32_t seed, const uint8_t *p, size_t count) {
  uint32_t crc = ~seed;
  size_t step = 4;
  for (size_t stretch = STRETCH_BYTES_MAX; count >= 3 * STRETCH_BYTES_MIN; stretch /= 2, step--) {
    for (; count >= 3 * stretch; p += 3 * stretch, count -= 3 * stretch) {
      uint32_t second = 0, third = 0;
      for (size_t i = 0; i < stretch; i += 8) {
        crc = STEP_8(crc, word_at(p + i));
        second = STEP_8(second, word_at(p + stretch + i));
        third = STEP_8(third, word_at(p + 2 * stretch + i));
      }
      crc = STEP_8(0, multiply(crc, behind_bytes[step + 1]) ^ multiply(second, behind_bytes[step])) ^ third;
    }
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
