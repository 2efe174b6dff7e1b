/* What the file lacks of what memory holds. */
#include <stdlib.h>
#include <string.h>

#include "store.h"

static inline bool
is_unsaved(const revision *r)
{
    return !r->closed && !r->saved;
}

static void
note(store *s, uint64_t oid)
{
    if (s->unsaved != NULL && s->unsaved_count < s->unsaved_max) {
        s->unsaved[s->unsaved_count++] = oid;
    }
    else {
        s->unsaved_overflow = true;
    }
}

void
store_note_unsaved(store *s, const revision *r)
{
    if (is_unsaved(r)) {
        s->tier.unsaved_bytes += revision_state_bytes(r);
        note(s, r->oid);
    }
}

void
store_forget_unsaved(store *s, const revision *r)
{
    if (is_unsaved(r)) {
        s->tier.unsaved_bytes -= revision_state_bytes(r);
    }
}

void
store_mark_saved(store *s, revision *r)
{
    store_forget_unsaved(s, r);
    r->saved = 1;
    r->told = (uint8_t)store_frequency(s, r) & 15;
}

/* How many open revisions the file may lack; their oids, if there is room for them. */
static size_t
search(const store *s, uint64_t *oids)
{
    size_t count = 0;
    for (offset_t b = ARENA_FIRST; b < s->arena.top; b = arena_next(&s->arena, b)) {
        if (!block_is_free(&s->arena, b) && is_unsaved(revision_at(&s->arena, b))) {
            if (oids != NULL) {
                oids[count] = revision_at(&s->arena, b)->oid;
            }
            count++;
        }
    }
    return count;
}

uint64_t *
store_take_unsaved(store *s, size_t *count)
{
    store_list_unsaved(s);
    *count = s->unsaved_overflow ? search(s, NULL) : s->unsaved_count;
    uint64_t *oids = malloc((*count + 1) * sizeof *oids);
    if (oids == NULL) {
        return NULL;
    }
    if (s->unsaved_overflow) {
        search(s, oids);
    }
    else {
        memcpy(oids, s->unsaved, *count * sizeof *oids);
    }
    s->unsaved_count = 0;
    s->unsaved_overflow = s->unsaved == NULL;
    return oids;
}

void
store_return_unsaved(store *s, const uint64_t *oids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        revision *r = store_open_revision(s, oids[i]);
        if (r != NULL && r->saved) {
            r->saved = 0;
            store_note_unsaved(s, r);
        }
        else if (r != NULL) {
            note(s, r->oid);
        }
    }
}

size_t
store_pack(store *s, const uint64_t *oids, size_t count, uint64_t through, size_t bytes_max,
           batch *found)
{
    size_t done = 0;
    for (; done < count && found->states_bytes < bytes_max; done++) {
        revision *r = store_open_revision(s, oids[done]);
        if (r == NULL || r->saved) {
            continue;
        }
        if (r->tid > through) { /* I1 */
            note(s, r->oid);
            continue;
        }
        if (!batch_add(found, r->oid, r->tid, store_frequency(s, r), revision_state(r),
                       revision_state_bytes(r))) {
            break;
        }
        store_mark_saved(s, r);
    }
    return done;
}

void
store_mark_unsaved(store *s)
{
    s->tier.unsaved_bytes = 0;
    for (offset_t b = ARENA_FIRST; b < s->arena.top; b = arena_next(&s->arena, b)) {
        revision *r = revision_at(&s->arena, b);
        if (!block_is_free(&s->arena, b)) {
            r->saved = 0;
            s->tier.unsaved_bytes += r->closed ? 0 : revision_state_bytes(r);
        }
    }
    s->unsaved_overflow = true;
}

size_t
store_heated(store *s, size_t *position, size_t slots, unsigned faded, revision_gain *gains)
{
    size_t end = table_bytes(&s->table) / sizeof(uint64_t), count = 0;
    for (; *position < end && slots > 0; ++*position, slots--) {
        uint64_t slot = s->table.slots[*position];
        revision *r = slot ? revision_at(&s->arena, slot_offset(slot)) : NULL;
        if (r == NULL || r->closed || !r->saved) {
            continue;
        }
        unsigned frequency = store_frequency(s, r), told = r->told > faded ? r->told - faded : 0;
        if (frequency > 2 * told) {
            gains[count++] = (revision_gain){r->oid, r->tid, frequency - told};
        }
        if (frequency > 2 * told || frequency < told) {
            r->told = (uint8_t)frequency & 15;
        }
    }
    if (*position >= end) {
        *position = 0;
    }
    return count;
}
