#include "table.h"

#include <assert.h>
#include <string.h>

#include "pages.h"

/* Slots after the last home, for what the last homes spill.  A chain this
 * long does not come about by chance. */
enum { SPILL_SLOTS = 1024, FIRST_HOME_SLOTS = 512 };

static size_t
all_slots(size_t home_slots)
{
    return home_slots + SPILL_SLOTS;
}

static size_t
grown(size_t home_slots)
{
    return home_slots + home_slots / 4;
}

static bool
is_full(const table *t)
{
    return t->count + 1 > t->home_slots - t->home_slots / 8;
}

static size_t
home_of(const table *t, uint64_t slot)
{
    return (size_t)(((uint64_t)slot_hash(slot) * t->home_slots) >> 32);
}

bool
table_open(table *t, size_t reserved_slots)
{
    t->home_slots = FIRST_HOME_SLOTS;
    t->reserved_slots = all_slots(reserved_slots > FIRST_HOME_SLOTS ? reserved_slots
                                                                    : FIRST_HOME_SLOTS);
    t->count = 0;
    t->slots = pages_reserve(t->reserved_slots * sizeof *t->slots);
    if (t->slots != NULL && t->reserved_slots * sizeof *t->slots >= ((size_t)32 << 20)) {
        pages_prefer_huge(t->slots, t->reserved_slots * sizeof *t->slots);
    }
    return t->slots != NULL;
}

void
table_close(table *t)
{
    pages_free(t->slots, t->reserved_slots * sizeof *t->slots);
    t->slots = NULL;
}

void
table_clear(table *t)
{
    memset(t->slots, 0, all_slots(FIRST_HOME_SLOTS) * sizeof *t->slots);
    size_t kept_bytes = all_slots(FIRST_HOME_SLOTS) * sizeof *t->slots;
    size_t touched_bytes = table_bytes(t);
    if (touched_bytes > kept_bytes) {
        memset((char *)t->slots + kept_bytes, 0, touched_bytes - kept_bytes);
        pages_release(t->slots, kept_bytes, t->reserved_slots * sizeof *t->slots);
    }
    t->home_slots = FIRST_HOME_SLOTS;
    t->count = 0;
}

/* Spread the slots over more homes: pack them at the new end, then lay them
 * down in order.  No slot is written before it has been read, because those
 * still to come fit behind the one being laid. */
static bool
grow(table *t)
{
    size_t before = all_slots(t->home_slots);
    size_t homes = grown(t->home_slots);
    size_t after = all_slots(homes);
    if (after > t->reserved_slots) {
        return false;
    }
    size_t packed = after;
    for (size_t i = before; i-- > 0;) {
        if (t->slots[i]) {
            t->slots[--packed] = t->slots[i];
        }
    }
    t->home_slots = homes;
    size_t next = 0;
    for (size_t i = packed; i < after; i++) {
        uint64_t slot = t->slots[i];
        size_t home = home_of(t, slot);
        for (; next < home; next++) {
            t->slots[next] = 0;
        }
        assert(next <= i);
        t->slots[next++] = slot;
    }
    if (next < after) {
        memset(t->slots + next, 0, (after - next) * sizeof *t->slots);
    }
    return true;
}

bool
table_add(table *t, uint32_t hash, offset_t block)
{
    if (is_full(t) && !grow(t)) {
        return false;
    }
    uint64_t *slot = (uint64_t *)table_first(t, hash);
    uint64_t *hole = slot;
    while (*hole) {
        hole++;
    }
    /* The last slot stays empty: it ends every search. */
    if (hole + 1 >= t->slots + all_slots(t->home_slots)) {
        return grow(t) && table_add(t, hash, block);
    }
    memmove(slot + 1, slot, (size_t)(hole - slot) * sizeof *slot);
    *slot = (uint64_t)hash << 32 | block;
    t->count++;
    return true;
}

static uint64_t *
find(table *t, uint32_t hash, offset_t block)
{
    uint64_t wanted = (uint64_t)hash << 32 | block;
    uint64_t *slot = (uint64_t *)table_first(t, hash);
    while (*slot != wanted) {
        assert(*slot && slot_hash(*slot) == hash);
        slot++;
    }
    return slot;
}

void
table_remove(table *t, uint32_t hash, offset_t block)
{
    uint64_t *slot = find(t, hash, block);
    uint64_t *end = slot + 1;
    while (*end && home_of(t, *end) < (size_t)(end - t->slots)) {
        end++;
    }
    memmove(slot, slot + 1, (size_t)(end - slot - 1) * sizeof *slot);
    end[-1] = 0;
    t->count--;
}

void
table_replace(table *t, uint32_t hash, offset_t from, offset_t to)
{
    *find(t, hash, from) = (uint64_t)hash << 32 | to;
}

size_t
table_bytes(const table *t)
{
    return all_slots(t->home_slots) * sizeof *t->slots;
}

size_t
table_bytes_after_add(const table *t)
{
    return is_full(t) ? all_slots(grown(t->home_slots)) * sizeof *t->slots : table_bytes(t);
}

const char *
table_check(const table *t)
{
    size_t count = 0, all = all_slots(t->home_slots);
    for (size_t i = 0; i < all; i++) {
        uint64_t slot = t->slots[i];
        if (!slot) {
            continue;
        }
        count++;
        size_t home = home_of(t, slot);
        if (home > i) {
            return "a slot lies before its home";
        }
        if (home < i && !t->slots[i - 1]) {
            return "an empty slot lies between a slot and its home";
        }
        if (i && t->slots[i - 1] && slot_hash(t->slots[i - 1]) > slot_hash(slot)) {
            return "slots are out of order";
        }
    }
    if (t->slots[all - 1]) {
        return "the last slot is taken";
    }
    return count == t->count ? NULL : "slots are miscounted";
}
