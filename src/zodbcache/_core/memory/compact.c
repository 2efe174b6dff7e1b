/* Joining holes: a hand goes round the arena and slides blocks down. */
#include "store.h"

/* The first free block at or after the hand, or 0 when there is none before top. */
static offset_t
next_hole(const arena *a)
{
    offset_t block = a->hand;
    while (block < a->top && !block_is_free(a, block)) {
        block = arena_next(a, block);
    }
    return block < a->top ? block : 0;
}

/* Slide the block behind the hole down, and mend what refers to it. */
static offset_t
slide(store *s, offset_t hole)
{
    offset_t from = arena_next(&s->arena, hole);
    offset_t grown = arena_slide(&s->arena, hole);
    table_replace(&s->table, table_hash(revision_at(&s->arena, hole)->oid), from, hole);
    segments_moved(&s->segments, &s->arena, hole);
    s->tier.counters.moved_bytes += (uint64_t)block_granules(&s->arena, hole) * GRANULE_BYTES;
    return grown;
}

/* Until a hole of so many granules has come about, or the space above top has
 * them, or so much work has been done. */
void
store_compact(store *s, uint32_t granules, size_t work_granules)
{
    arena *a = &s->arena;
    size_t done = 0;
    for (int rounds = 0; rounds < 2;) {
        offset_t hole = next_hole(a);
        if (!hole) {
            a->hand = ARENA_FIRST;
            rounds++;
            continue;
        }
        while (hole && block_granules(a, hole) < granules && done < work_granules) {
            offset_t kept = hole;
            hole = slide(s, hole);
            done += block_granules(a, kept);
        }
        if (hole) {
            a->hand = hole;
            return;
        }
        a->hand = ARENA_FIRST;
        if (a->top <= a->budget && a->budget - a->top >= granules) {
            return;
        }
        rounds++;
    }
}
