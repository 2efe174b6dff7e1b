#include "arena.h"

#include <assert.h>
#include <string.h>

#include "pages.h"

typedef struct {
    uint32_t extent;
    offset_t next;
    offset_t previous;
} free_block;

#define FREE_BIT 1u
#define PREVIOUS_FREE_BIT 2u
#define HUGE_PAGES_FROM_BYTES ((size_t)64 << 20)

static free_block *
free_at(const arena *a, offset_t block)
{
    return arena_at(a, block);
}

static uint32_t *
footer_of(const arena *a, offset_t block)
{
    return (uint32_t *)arena_at(a, arena_next(a, block)) - 1;
}

static void
set_extent(arena *a, offset_t block, uint32_t granules, uint32_t bits)
{
    *(uint32_t *)arena_at(a, block) = granules << 2 | bits;
}

static void
set_previous_free(arena *a, offset_t block, bool is_free)
{
    if (block < a->top) {
        uint32_t *extent = arena_at(a, block);
        *extent = is_free ? *extent | PREVIOUS_FREE_BIT : *extent & ~PREVIOUS_FREE_BIT;
    }
}

/* The list a block of this size belongs to: sizes below ARENA_STEPS have one
 * each, larger ones share each power of two among ARENA_STEPS lists. */
static void
class_of(uint32_t granules, unsigned *fl, unsigned *sl)
{
    if (granules < ARENA_STEPS) {
        *fl = 0;
        *sl = granules;
    }
    else {
        unsigned log2 = 31u - (unsigned)__builtin_clz(granules);
        *fl = log2 - ARENA_STEPS_LOG2 + 1;
        *sl = (granules >> (log2 - ARENA_STEPS_LOG2)) & (ARENA_STEPS - 1);
    }
}

static void
free_list_add(arena *a, offset_t block, uint32_t granules)
{
    unsigned fl, sl;
    class_of(granules, &fl, &sl);
    free_block *f = free_at(a, block);
    f->previous = 0;
    f->next = a->free_head[fl][sl];
    if (f->next) {
        free_at(a, f->next)->previous = block;
    }
    a->free_head[fl][sl] = block;
    a->step_map[fl] |= (uint16_t)(1u << sl);
    a->class_map |= 1u << fl;
}

static void
free_list_remove(arena *a, offset_t block)
{
    free_block *f = free_at(a, block);
    if (f->next) {
        free_at(a, f->next)->previous = f->previous;
    }
    if (f->previous) {
        free_at(a, f->previous)->next = f->next;
        return;
    }
    unsigned fl, sl;
    class_of(f->extent >> 2, &fl, &sl);
    a->free_head[fl][sl] = f->next;
    if (!f->next) {
        a->step_map[fl] &= (uint16_t) ~(1u << sl);
        if (!a->step_map[fl]) {
            a->class_map &= ~(1u << fl);
        }
    }
}

/* Turn [block, block + granules) into a free block.  Its neighbours are used. */
static void
make_hole(arena *a, offset_t block, uint32_t granules)
{
    set_extent(a, block, granules, FREE_BIT);
    *footer_of(a, block) = granules;
    free_list_add(a, block, granules);
    set_previous_free(a, block + granules, true);
}

static void
hand_avoids(arena *a, offset_t from, offset_t to)
{
    if (a->hand > from && a->hand < to) {
        a->hand = from;
    }
}

bool
arena_open(arena *a, size_t limit_bytes)
{
    memset(a, 0, sizeof *a);
    a->reserved_bytes = limit_bytes + 2 * GRANULE_BYTES;
    a->base = pages_reserve(a->reserved_bytes);
    if (a->base == NULL) {
        return false;
    }
    if (limit_bytes >= HUGE_PAGES_FROM_BYTES) {
        pages_prefer_huge(a->base, a->reserved_bytes);
    }
    a->budget = (uint32_t)(limit_bytes / GRANULE_BYTES);
    a->top = a->hand = ARENA_FIRST;
    return true;
}

void
arena_close(arena *a)
{
    pages_free(a->base, a->reserved_bytes);
    a->base = NULL;
}

void
arena_clear(arena *a)
{
    a->top = a->hand = ARENA_FIRST;
    a->used = 0;
    a->class_map = 0;
    memset(a->step_map, 0, sizeof a->step_map);
    memset(a->free_head, 0, sizeof a->free_head);
    arena_trim(a);
}

/* A free block of at least granules, or 0.  The lists above the wish's own fit
 * for certain; of its own list the first few are looked at. */
static offset_t
find_fit(const arena *a, uint32_t granules)
{
    unsigned fl, sl;
    class_of(granules, &fl, &sl);
    offset_t block = a->free_head[fl][sl];
    for (int tries = 4; block && tries; tries--) {
        if (block_granules(a, block) >= granules) {
            return block;
        }
        block = free_at(a, block)->next;
    }
    uint32_t steps = a->step_map[fl] & (uint32_t)~((2u << sl) - 1u);
    if (!steps) {
        uint32_t classes = fl + 1 < ARENA_CLASSES ? a->class_map & ~((2u << fl) - 1u) : 0;
        if (!classes) {
            return 0;
        }
        fl = (unsigned)__builtin_ctz(classes);
        steps = a->step_map[fl];
    }
    return a->free_head[fl][__builtin_ctz(steps)];
}

offset_t
arena_allocate_below(arena *a, uint32_t granules)
{
    assert(granules >= BLOCK_MIN_GRANULES);
    offset_t block = find_fit(a, granules);
    if (!block) {
        return 0;
    }
    uint32_t found = block_granules(a, block);
    free_list_remove(a, block);
    if (found - granules >= BLOCK_MIN_GRANULES) {
        set_extent(a, block, granules, 0);
        make_hole(a, block + granules, found - granules);
    }
    else {
        granules = found;
        set_extent(a, block, granules, 0);
        set_previous_free(a, block + granules, false);
    }
    a->used += granules;
    return block;
}

offset_t
arena_allocate(arena *a, uint32_t granules)
{
    offset_t block = arena_allocate_below(a, granules);
    if (block || a->top > a->budget || a->budget - a->top < granules) {
        return block;
    }
    block = a->top;
    a->top += granules;
    a->used += granules;
    set_extent(a, block, granules, 0); /* what ends at top is in use */
    return block;
}

/* Free [block, block + granules), of which nothing is linked any more, and
 * join it with its free neighbours.  Return the hole's start, or 0 when it
 * went to the space above top. */
static offset_t
release_span(arena *a, offset_t block, uint32_t granules, bool previous_free)
{
    offset_t start = block, end = block + granules;
    if (previous_free) {
        uint32_t before = ((uint32_t *)arena_at(a, block))[-1];
        start = block - before;
        free_list_remove(a, start);
    }
    if (end < a->top && block_is_free(a, end)) {
        uint32_t after = block_granules(a, end);
        free_list_remove(a, end);
        end += after;
    }
    hand_avoids(a, start, end);
    if (end == a->top) {
        a->top = start;
        if (a->hand > start) {
            a->hand = start;
        }
        return 0;
    }
    make_hole(a, start, end - start);
    return start;
}

void
arena_free(arena *a, offset_t block)
{
    uint32_t extent = block_extent(a, block);
    assert(!(extent & FREE_BIT));
    a->used -= extent >> 2;
    release_span(a, block, extent >> 2, extent & PREVIOUS_FREE_BIT);
}

offset_t
arena_slide(arena *a, offset_t hole)
{
    uint32_t gap = block_granules(a, hole);
    offset_t block = hole + gap;
    uint32_t granules = block_granules(a, block);
    assert(block_is_free(a, hole) && block < a->top && !block_is_free(a, block));
    free_list_remove(a, hole);
    if (a->hand == block) {
        a->hand = hole;
    }
    memmove(arena_at(a, hole), arena_at(a, block), (size_t)granules * GRANULE_BYTES);
    set_extent(a, hole, granules, 0);
    return release_span(a, hole + granules, gap, false);
}

void
arena_set_budget(arena *a, uint32_t granules)
{
    uint32_t reserved = (uint32_t)(a->reserved_bytes / GRANULE_BYTES) - 2;
    a->budget = granules < reserved ? granules : reserved;
}

void
arena_trim(arena *a)
{
    pages_release(a->base, (size_t)a->top * GRANULE_BYTES, a->reserved_bytes);
}

const char *
arena_check(const arena *a)
{
    uint32_t used = 0, free_blocks = 0, listed = 0;
    bool previous_free = false, hand_seen = a->hand == a->top;
    for (offset_t b = ARENA_FIRST; b < a->top; b = arena_next(a, b)) {
        uint32_t extent = block_extent(a, b);
        if (extent >> 2 < BLOCK_MIN_GRANULES || arena_next(a, b) > a->top) {
            return "a block's extent is impossible";
        }
        if (previous_free != !!(extent & PREVIOUS_FREE_BIT)) {
            return "a block is wrong about its predecessor";
        }
        if (extent & FREE_BIT) {
            if (previous_free) {
                return "two free blocks are neighbours";
            }
            if (*footer_of(a, b) != extent >> 2) {
                return "a free block's footer differs from its extent";
            }
            free_blocks++;
        }
        else {
            used += extent >> 2;
        }
        previous_free = extent & FREE_BIT;
        hand_seen |= a->hand == b;
    }
    if (previous_free) {
        return "a free block touches top";
    }
    if (!hand_seen) {
        return "the hand points into a block";
    }
    if (used != a->used) {
        return "used granules are miscounted";
    }
    for (unsigned fl = 0; fl < ARENA_CLASSES; fl++) {
        if (!a->step_map[fl] != !(a->class_map >> fl & 1u)) {
            return "the class map disagrees with a step map";
        }
        for (unsigned sl = 0; sl < ARENA_STEPS; sl++) {
            offset_t before = 0;
            if (!a->free_head[fl][sl] != !(a->step_map[fl] >> sl & 1u)) {
                return "a step map disagrees with its list";
            }
            for (offset_t b = a->free_head[fl][sl]; b; b = free_at(a, b)->next) {
                unsigned want_fl, want_sl;
                class_of(block_granules(a, b), &want_fl, &want_sl);
                if (!block_is_free(a, b) || want_fl != fl || want_sl != sl ||
                    free_at(a, b)->previous != before) {
                    return "a free list holds a block that does not belong there";
                }
                before = b;
                if (++listed > free_blocks) {
                    return "a free list runs in a circle";
                }
            }
        }
    }
    return listed == free_blocks ? NULL : "a free block is in no list";
}
