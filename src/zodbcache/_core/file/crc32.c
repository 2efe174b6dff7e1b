#include "crc32.h"

#include <string.h>

enum { SLICES = 16 };

static uint32_t table[SLICES][256];

void
crc32_begin(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
        }
        table[0][byte] = crc;
    }
    for (int slice = 1; slice < SLICES; slice++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = table[slice - 1][byte];
            table[slice][byte] = crc >> 8 ^ table[0][crc & 255];
        }
    }
}

uint32_t
crc32_of(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *byte = data;
    crc = ~crc;
    for (; size >= SLICES; size -= SLICES, byte += SLICES) {
        unsigned char mixed[SLICES];
        memcpy(mixed, byte, SLICES);
        for (int i = 0; i < 4; i++) {
            mixed[i] ^= (unsigned char)(crc >> 8 * i);
        }
        crc = 0;
        for (int i = 0; i < SLICES; i++) {
            crc ^= table[SLICES - 1 - i][mixed[i]];
        }
    }
    while (size-- > 0) {
        crc = crc >> 8 ^ table[0][(crc ^ *byte++) & 255];
    }
    return ~crc;
}
