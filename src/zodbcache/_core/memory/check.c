/* Walks everything and says which invariant does not hold. */
#include "store.h"

static const char *
check_neighbours(const store *s, const uint64_t *slot, const revision *r)
{
    unsigned closed = 0;
    for (const uint64_t *other = table_first(&s->table, slot_hash(*slot));
         slot_hash(*other) == slot_hash(*slot) && *other; other++) {
        const revision *o = revision_at(&s->arena, slot_offset(*other));
        if (o->oid != r->oid) {
            continue;
        }
        closed += o->closed;
        if (o == r) {
            continue;
        }
        const revision *first = o->tid < r->tid ? o : r;
        const revision *second = first == o ? r : o;
        if (first->tid == second->tid || !first->closed || revision_end(first) > second->tid) {
            return "I1: two revisions of one oid overlap in time";
        }
    }
    return closed > REVISIONS_MAX ? "an oid has too many closed revisions" : NULL;
}

static const char *
check_revisions(const store *s)
{
    size_t state_bytes = 0, unsaved_bytes = 0, count = 0;
    const uint64_t *end = s->table.slots + table_bytes(&s->table) / sizeof(uint64_t);
    for (const uint64_t *slot = s->table.slots; slot < end; slot++) {
        if (!*slot) {
            continue;
        }
        offset_t block = slot_offset(*slot);
        if (block < ARENA_FIRST || block >= s->arena.top || block_is_free(&s->arena, block)) {
            return "a slot leads to no block in use";
        }
        const revision *r = revision_at(&s->arena, block);
        if (table_hash(r->oid) != slot_hash(*slot)) {
            return "a slot leads to another oid's block";
        }
        if (r->segment >= SEGMENTS) {
            return "a revision is in no segment";
        }
        if (r->closed && revision_end(r) <= r->tid) {
            return "I1: a revision ends before it begins";
        }
        if (revision_state_bytes(r) > s->tier.object_max_bytes) {
            return "a state is longer than allowed";
        }
        const char *wrong = check_neighbours(s, slot, r);
        if (wrong) {
            return wrong;
        }
        state_bytes += revision_state_bytes(r);
        unsaved_bytes += r->closed || r->saved ? 0 : revision_state_bytes(r);
        count++;
    }
    if (unsaved_bytes != s->tier.unsaved_bytes) {
        return "the bytes that the file lacks are miscounted";
    }
    if (state_bytes != s->state_bytes) {
        return "I5: state bytes are miscounted";
    }
    size_t linked = 0, granules = 0;
    for (unsigned id = 0; id < SEGMENTS; id++) {
        linked += s->segments.list[id].count;
        granules += s->segments.list[id].granules;
    }
    if (linked != count || granules != s->arena.used) {
        return "I5: segments and blocks in use differ";
    }
    return NULL;
}

const char *
store_check(const store *s)
{
    const char *wrong = arena_check(&s->arena);
    wrong = wrong ? wrong : table_check(&s->table);
    wrong = wrong ? wrong : segments_check(&s->segments, &s->arena);
    wrong = wrong ? wrong : check_revisions(s);
    if (wrong) {
        return wrong;
    }
    if (s->arena.top > s->arena.budget && s->arena.top > ARENA_FIRST) {
        return "I5: the arena is over its budget";
    }
    size_t touched = store_used_bytes(s) + (size_t)arena_holes(&s->arena) * GRANULE_BYTES;
    bool is_over = touched > s->tier.limit_bytes;
    return is_over && s->arena.top > ARENA_FIRST ? "I5: over the limit" : NULL;
}
