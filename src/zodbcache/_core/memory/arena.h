/* One region of memory, divided into blocks addressed by offsets.
 *
 * Two-level segregated fit (Masmano et al., "TLSF: a new dynamic memory
 * allocator for real-time systems", ECRTS 2004), with offsets for pointers so
 * that whoever owns the references can slide a block.  Sizes and offsets
 * count granules of 8 bytes; offset 0 is no block.
 *
 *   [ unused granule | block | block | ... | block | untouched ... ]
 *   0                1                             top            budget
 *
 * A block begins with its extent: granules << 2 | previous is free << 1 | free.
 * A free block holds two links after the extent and its size again in its last
 * four bytes.  No two free blocks are neighbours, and none touches top.
 *
 * arena_allocate, arena_free: O(1).  arena_next: O(1).
 */
#ifndef ZODBCACHE_ARENA_H
#define ZODBCACHE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRANULE_BYTES 8u
#define BLOCK_MIN_GRANULES 2u

typedef uint32_t offset_t;

enum { ARENA_CLASSES = 32, ARENA_STEPS_LOG2 = 4, ARENA_STEPS = 1 << ARENA_STEPS_LOG2 };

typedef struct {
    char *base;
    size_t reserved_bytes;
    uint32_t budget;  /* granules that may be used; the end of the last block allowed */
    uint32_t top;     /* the end of the last block */
    uint32_t used;    /* granules in blocks in use */
    uint32_t hand;    /* a block's start, or top: where compaction goes on */
    uint32_t class_map;
    uint16_t step_map[ARENA_CLASSES];
    offset_t free_head[ARENA_CLASSES][ARENA_STEPS];
} arena;

/* Reserve address space for limit_bytes.  Return false when there is none. */
bool arena_open(arena *a, size_t limit_bytes);
void arena_close(arena *a);

/* Forget every block and give the memory back. */
void arena_clear(arena *a);

/* A block of at least granules (>= BLOCK_MIN_GRANULES), or 0 when no free
 * block fits and top would pass the budget.  May exceed the wish by one. */
offset_t arena_allocate(arena *a, uint32_t granules);

/* The same, but never by raising top. */
offset_t arena_allocate_below(arena *a, uint32_t granules);

void arena_free(arena *a, offset_t block);

/* Slide the used block that follows the free block at hole down to hole, and
 * return where the hole begins now; 0 when it has merged into the space above
 * top.  Only the block's bytes move: the caller mends all references from
 * hole + granules to hole, before anything else happens. */
offset_t arena_slide(arena *a, offset_t hole);

/* The budget may be lower than top: nothing is allocated above it then. */
void arena_set_budget(arena *a, uint32_t granules);

/* Give the untouched part of the region back to the system. */
void arena_trim(arena *a);

/* NULL, or what is wrong with the blocks and the free lists. */
const char *arena_check(const arena *a);

#define ARENA_FIRST 1u

static inline void *
arena_at(const arena *a, offset_t block)
{
    return a->base + (size_t)block * GRANULE_BYTES;
}

static inline uint32_t
block_extent(const arena *a, offset_t block)
{
    return *(const uint32_t *)arena_at(a, block);
}

static inline uint32_t
block_granules(const arena *a, offset_t block)
{
    return block_extent(a, block) >> 2;
}

static inline bool
block_is_free(const arena *a, offset_t block)
{
    return block_extent(a, block) & 1u;
}

/* The block after this one, or top. */
static inline offset_t
arena_next(const arena *a, offset_t block)
{
    return block + block_granules(a, block);
}

/* Granules that are free below top. */
static inline uint32_t
arena_holes(const arena *a)
{
    return a->top - ARENA_FIRST - a->used;
}

/* Granules that evicting nothing more could still give, wherever they lie. */
static inline uint32_t
arena_room(const arena *a)
{
    uint32_t taken = a->used + ARENA_FIRST;
    return a->budget > taken ? a->budget - taken : 0;
}

#endif
