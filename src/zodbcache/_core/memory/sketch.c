#include "sketch.h"

#include <string.h>

#include "pages.h"

#define HALF_OF_EACH UINT64_C(0x7777777777777777)
enum { ROWS = 4, ROW_BITS = 16, COUNTER_BITS = 4, COUNTER_MAX = 15, AGING_FACTOR = 5 };

static size_t
words_for(size_t slots)
{
    return sketch_bytes_for(slots) / sizeof(uint64_t);
}

bool
sketch_open(sketch *s, size_t reserved_slots, size_t slots)
{
    s->reserved_words = words_for(reserved_slots);
    s->count = words_for(slots);
    s->additions = 0;
    s->words = pages_reserve(s->reserved_words * sizeof *s->words);
    return s->words != NULL;
}

void
sketch_close(sketch *s)
{
    pages_free(s->words, s->reserved_words * sizeof *s->words);
    s->words = NULL;
}

void
sketch_clear(sketch *s, size_t slots)
{
    memset(s->words, 0, s->count * sizeof *s->words);
    s->count = words_for(slots);
    s->additions = 0;
    pages_release(s->words, s->count * sizeof *s->words, s->reserved_words * sizeof *s->words);
}

void
sketch_grow(sketch *s, size_t slots)
{
    size_t count = words_for(slots);
    if (count > s->reserved_words) {
        count = s->reserved_words;
    }
    for (size_t i = count; i-- > 0;) {
        s->words[i] = s->words[i * s->count / count];
    }
    s->count = count;
}

static uint64_t *
word_of(const sketch *s, uint32_t hash)
{
    return s->words + (((uint64_t)hash * s->count) >> 32);
}

/* Where the hash's counter of this row begins.  The word took the hash's
 * upper bits; these are the lower eight, two for each row. */
static unsigned
shift_of(uint32_t hash, unsigned row)
{
    return row * ROW_BITS + (hash >> (2 * row) & 3u) * COUNTER_BITS;
}

static void
age(sketch *s)
{
    for (size_t i = 0; i < s->count; i++) {
        s->words[i] = s->words[i] >> 1 & HALF_OF_EACH;
    }
    s->additions /= 2;
}

void
sketch_add(sketch *s, uint32_t hash, unsigned times)
{
    uint64_t *word = word_of(s, hash);
    for (unsigned row = 0; row < ROWS; row++) {
        unsigned shift = shift_of(hash, row);
        uint64_t counter = *word >> shift & COUNTER_MAX;
        uint64_t sum = counter + times < COUNTER_MAX ? counter + times : COUNTER_MAX;
        *word += (sum - counter) << shift;
    }
    s->additions += times;
    if (s->additions >= AGING_FACTOR * SLOTS_PER_WORD * s->count) {
        age(s);
    }
}

void
sketch_subtract(sketch *s, uint32_t hash)
{
    uint64_t *word = word_of(s, hash);
    for (unsigned row = 0; row < ROWS; row++) {
        unsigned shift = shift_of(hash, row);
        if (*word >> shift & COUNTER_MAX) {
            *word -= UINT64_C(1) << shift;
        }
    }
}

unsigned
sketch_estimate(const sketch *s, uint32_t hash)
{
    uint64_t word = *word_of(s, hash);
    unsigned least = COUNTER_MAX;
    for (unsigned row = 0; row < ROWS; row++) {
        unsigned counter = word >> shift_of(hash, row) & COUNTER_MAX;
        least = counter < least ? counter : least;
    }
    return least;
}
