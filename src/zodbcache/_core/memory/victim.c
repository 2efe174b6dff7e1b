/* Who has to go: lazy promotion, and TinyLFU's contest at eden's end. */
#include "store.h"

enum { EDEN_PERCENT = 15, PROTECTED_PERCENT = 80, SETTLE_AT_ONCE = 2 };

static uint32_t
eden_target(const store *s)
{
    return s->arena.budget / 100 * EDEN_PERCENT;
}

uint32_t
store_protected_target(const store *s)
{
    return (s->arena.budget - eden_target(s)) / 100 * PROTECTED_PERCENT;
}

static void
move_to(store *s, offset_t block, enum segment_id id)
{
    segments_unlink(&s->segments, &s->arena, block);
    segments_link(&s->segments, &s->arena, block, id);
}

static void
promote(store *s, offset_t block)
{
    revision *r = revision_at(&s->arena, block);
    sketch_add(&s->sketch, sketch_hash(r->oid), r->frequency);
    r->frequency = 0;
    move_to(s, block, PROTECTED);
}

/* What protected holds too much goes back to probation, unless it was read
 * since it was looked at last. */
static void
demote_overflow(store *s)
{
    segment *protected = &s->segments.list[PROTECTED];
    while (protected->granules > store_protected_target(s)) {
        revision *r = revision_at(&s->arena, protected->tail);
        if (r->frequency) {
            r->frequency /= 2;
            move_to(s, protected->tail, PROTECTED);
        }
        else {
            move_to(s, protected->tail, PROBATION);
        }
    }
}

/* The revision that left eden longest ago and was not read since, or 0. */
static offset_t
probation_victim(store *s)
{
    segment *probation = &s->segments.list[PROBATION];
    segment *protected = &s->segments.list[PROTECTED];
    for (;;) {
        demote_overflow(s);
        if (!probation->tail) {
            if (!protected->tail) {
                return 0;
            }
            revision_at(&s->arena, protected->tail)->frequency = 0;
            move_to(s, protected->tail, PROBATION);
        }
        offset_t block = probation->tail;
        if (!revision_at(&s->arena, block)->frequency) {
            return block;
        }
        promote(s, block);
    }
}

unsigned
store_frequency(const store *s, const revision *r)
{
    unsigned sum = sketch_estimate(&s->sketch, sketch_hash(r->oid)) + r->frequency;
    return sum < FREQUENCY_MAX ? sum : FREQUENCY_MAX;
}

/* Requests after the first: the first one everything has had. */
static uint64_t
reuse(const store *s, const revision *r)
{
    unsigned frequency = store_frequency(s, r);
    return frequency ? frequency - 1 : 0;
}

/* Reuse a byte, compared without dividing. */
static bool
is_worth_more(const store *s, const revision *candidate, const revision *victim)
{
    return reuse(s, candidate) * (victim->extent >> 2) >=
           reuse(s, victim) * (candidate->extent >> 2);
}

offset_t
store_pick_victim(store *s)
{
    offset_t candidate = s->segments.list[EDEN].tail;
    offset_t victim = probation_victim(s);
    if (!candidate || (victim && s->segments.list[EDEN].granules <= eden_target(s))) {
        return victim;
    }
    if (victim && is_worth_more(s, revision_at(&s->arena, candidate),
                                revision_at(&s->arena, victim))) {
        move_to(s, candidate, PROBATION);
        return victim;
    }
    if (victim) { /* it has used some of its merit, or it would stand in the way for long */
        sketch_subtract(&s->sketch, sketch_hash(revision_at(&s->arena, victim)->oid));
    }
    s->tier.counters.rejections++;
    return candidate;
}

/* While the cache fills, what eden holds too much needs no contest. */
void
store_settle_eden(store *s)
{
    segment *eden = &s->segments.list[EDEN];
    uint32_t much = eden_target(s) + eden_target(s) / 8;
    for (int moves = 0; moves < SETTLE_AT_ONCE && eden->granules > much; moves++) {
        move_to(s, eden->tail, PROBATION);
    }
}
