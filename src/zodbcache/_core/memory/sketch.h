/* How often an oid was asked for lately, in four bytes a slot of the table.
 *
 * A count-min sketch of 4-bit counters, four for an oid, all in one word
 * (Cormode and Muthukrishnan 2005; as TinyLFU uses it: Einziger, Friedman,
 * Manes, "TinyLFU: a highly efficient cache admission policy", 2017).  An
 * estimate is never too low between two agings; every counter is halved when
 * as many were counted as five times the slots.
 */
#ifndef ZODBCACHE_SKETCH_H
#define ZODBCACHE_SKETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLOTS_PER_WORD = 2 };

typedef struct {
    uint64_t *words;
    size_t reserved_words;
    size_t count;     /* words in use */
    size_t additions; /* since the last aging */
} sketch;

bool sketch_open(sketch *s, size_t reserved_slots, size_t slots);
void sketch_close(sketch *s);
void sketch_clear(sketch *s, size_t slots);

/* Follow the table: estimates stay, spread over more words. */
void sketch_grow(sketch *s, size_t slots);

/* Count times (0 to 15) more. */
void sketch_add(sketch *s, uint32_t hash, unsigned times);

/* Count once less, where anything is counted. */
void sketch_subtract(sketch *s, uint32_t hash);

unsigned sketch_estimate(const sketch *s, uint32_t hash);

static inline size_t
sketch_bytes_for(size_t slots)
{
    return (slots / SLOTS_PER_WORD + 1) * sizeof(uint64_t);
}

#endif
