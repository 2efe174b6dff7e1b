#include "store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Room that is kept free once states no longer fit each other's holes, as
 * shares of the budget: first little, then as much as it takes. */
enum { LITTLE_SHARE = 40, MUCH_SHARE = 10 };

/* No block may be larger than this share of the budget. */
enum { BLOCK_SHARE = 4 };

/* So many oids of unsaved revisions are remembered, a share of the limit's bytes. */
enum { UNSAVED_SHARE = 2048, UNSAVED_MAX = 1 << 17 };

/* The smallest block and its slot: what bounds the number of revisions. */
enum { REVISION_LEAST_BYTES = 40 };

enum { CACHE_LINE_BYTES = 64, PREFETCH_LINES = 5 };

static void refit(store *s);

bool
store_open(store *s, size_t limit_bytes, size_t object_max_bytes)
{
    memset(s, 0, sizeof *s);
    size_t slots = limit_bytes / REVISION_LEAST_BYTES;
    size_t unsaved = limit_bytes / UNSAVED_SHARE;
    s->unsaved_max = (uint32_t)(unsaved < UNSAVED_MAX ? unsaved : UNSAVED_MAX);
    s->tier.limit_bytes = limit_bytes;
    s->tier.object_max_bytes = (uint32_t)(object_max_bytes < limit_bytes ? object_max_bytes
                                                                    : limit_bytes);
    s->unsaved_overflow = true; /* nothing is listed yet */
    if (arena_open(&s->arena, limit_bytes) && table_open(&s->table, slots) &&
        sketch_open(&s->sketch, slots, s->table.home_slots)) {
        refit(s);
        return true;
    }
    store_close(s);
    return false;
}

void
store_close(store *s)
{
    arena_close(&s->arena);
    table_close(&s->table);
    sketch_close(&s->sketch);
    free(s->unsaved);
    s->unsaved = NULL;
}

static size_t
overhead_bytes(const store *s)
{
    return table_bytes(&s->table) + s->sketch.count * sizeof(uint64_t) + s->reserved_bytes +
           (s->unsaved == NULL ? 0 : s->unsaved_max * sizeof *s->unsaved) + sizeof *s;
}

size_t
store_used_bytes(const store *s)
{
    return overhead_bytes(s) + (size_t)(s->arena.used + ARENA_FIRST) * GRANULE_BYTES;
}

static void
drop(store *s, offset_t block)
{
    revision *r = revision_at(&s->arena, block);
    if (r->segment != UNLINKED) {
        segments_unlink(&s->segments, &s->arena, block);
    }
    store_forget_unsaved(s, r);
    table_remove(&s->table, table_hash(r->oid), block);
    s->state_bytes -= revision_state_bytes(r);
    arena_free(&s->arena, block);
}

static bool
evict_one(store *s)
{
    offset_t block = store_pick_victim(s);
    if (!block) {
        return false;
    }
    const revision *r = revision_at(&s->arena, block);
    sketch_add(&s->sketch, sketch_hash(r->oid), r->frequency);
    drop(s, block);
    s->tier.counters.evictions++;
    return true;
}

/* Blocks that end above the budget go below it, or go. */
static void
clear_above_budget(store *s)
{
    arena *a = &s->arena;
    uint32_t little = a->budget / LITTLE_SHARE;
    while (arena_room(a) < little && evict_one(s)) {
    }
    size_t count = 0;
    for (offset_t b = ARENA_FIRST; b < a->top; b = arena_next(a, b)) {
        count += arena_next(a, b) > a->budget && !block_is_free(a, b);
    }
    offset_t *above = malloc((count + 1) * sizeof *above);
    if (above == NULL) {
        store_clear(s);
        return;
    }
    count = 0;
    for (offset_t b = ARENA_FIRST; b < a->top; b = arena_next(a, b)) {
        if (arena_next(a, b) > a->budget && !block_is_free(a, b)) {
            above[count++] = b;
        }
    }
    while (count-- > 0) {
        offset_t from = above[count];
        uint32_t granules = block_granules(a, from);
        offset_t to = arena_allocate_below(a, granules);
        if (!to || arena_next(a, to) > a->budget || block_granules(a, to) != granules) {
            if (to) {
                arena_free(a, to);
            }
            drop(s, from);
            continue;
        }
        uint32_t extent = block_extent(a, to);
        memcpy(arena_at(a, to), arena_at(a, from), (size_t)granules * GRANULE_BYTES);
        revision *r = revision_at(a, to);
        r->extent = extent;
        table_replace(&s->table, table_hash(r->oid), from, to);
        segments_moved(&s->segments, a, to);
        arena_free(a, from);
    }
    free(above);
    arena_trim(a);
}

/* The table, the sketch or the reserve changed: the arena gets the rest. */
static void
refit(store *s)
{
    size_t overhead = overhead_bytes(s);
    size_t rest = overhead < s->tier.limit_bytes ? s->tier.limit_bytes - overhead : 0;
    arena_set_budget(&s->arena, (uint32_t)(rest / GRANULE_BYTES));
    if (s->arena.top > s->arena.budget) {
        clear_above_budget(s);
    }
}

static void
follow_table(store *s)
{
    sketch_grow(&s->sketch, s->table.home_slots);
    refit(s);
}

void
store_list_unsaved(store *s)
{
    if (s->unsaved == NULL) {
        s->unsaved = malloc(s->unsaved_max * sizeof *s->unsaved);
        refit(s);
    }
}

/* Room for a block, whatever it takes; 0 when it cannot be had. */
static offset_t
make_room(store *s, uint32_t granules)
{
    arena *a = &s->arena;
    if (granules > a->budget / BLOCK_SHARE) {
        return 0;
    }
    uint32_t little = a->budget / LITTLE_SHARE, much = a->budget / MUCH_SHARE;
    struct {
        uint32_t spare;
        size_t work;
    } steps[] = {
        {0, 0},
        {little, 0},
        {little, 32 * (size_t)granules + 8192},
        {2 * little, 64 * (size_t)granules + 8192},
        {much, a->budget},
        {much, 2 * (size_t)a->budget},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        while (arena_room(a) < granules + steps[i].spare) {
            if (!evict_one(s)) {
                return 0;
            }
        }
        if (steps[i].work) {
            store_compact(s, granules, steps[i].work);
        }
        offset_t block = arena_allocate(a, granules);
        if (block) {
            return block;
        }
    }
    return 0;
}

/* Give the block its contents and enter it everywhere.  Return false, with
 * the block freed, when the table is full. */
static bool
settle(store *s, offset_t block, const revision *header, uint64_t end, const char *state,
       size_t state_bytes, enum segment_id id)
{
    arena *a = &s->arena;
    revision *r = revision_at(a, block);
    uint32_t extent = r->extent;
    *r = *header;
    r->extent = extent;
    r->segment = UNLINKED;
    r->newer = r->older = 0;
    r->closed = end != 0;
    r->bounded = header->bounded;
    if (end) {
        memcpy(r + 1, &end, sizeof end);
    }
    char *room = revision_state(r);
    r->slack = (uint16_t)((char *)arena_at(a, arena_next(a, block)) - room - state_bytes);
    memcpy(room, state, state_bytes);
    size_t homes = s->table.home_slots;
    if (!table_add(&s->table, table_hash(r->oid), block)) {
        arena_free(a, block);
        return false;
    }
    s->state_bytes += state_bytes;
    store_note_unsaved(s, r);
    segments_link(&s->segments, a, block, id);
    if (s->table.home_slots != homes) {
        follow_table(s);
    }
    return true;
}

static offset_t
offset_of(const store *s, const revision *r)
{
    return (offset_t)(((const char *)r - s->arena.base) / GRANULE_BYTES);
}

/* The slots of one oid, one after the other; NULL ends them. */
static const uint64_t *
slot_of_oid(const store *s, const uint64_t *slot, uint64_t oid)
{
    uint32_t hash = table_hash(oid);
    for (; *slot && slot_hash(*slot) == hash; slot++) {
        if (revision_at(&s->arena, slot_offset(*slot))->oid == oid) {
            return slot;
        }
    }
    return NULL;
}

static const uint64_t *
first_of_oid(const store *s, uint64_t oid)
{
    return slot_of_oid(s, table_first(&s->table, table_hash(oid)), oid);
}

static const uint64_t *
next_of_oid(const store *s, const uint64_t *slot, uint64_t oid)
{
    return slot_of_oid(s, slot + 1, oid);
}

/* The oid's revision of this tid, open or closed as asked, or NULL. */
static revision *
revision_of(const store *s, uint64_t oid, uint64_t tid, bool closed)
{
    for (const uint64_t *slot = first_of_oid(s, oid); slot; slot = next_of_oid(s, slot, oid)) {
        revision *r = revision_at(&s->arena, slot_offset(*slot));
        if (r->tid == tid && r->closed == closed) {
            return r;
        }
    }
    return NULL;
}

const revision *
store_revision(const store *s, uint64_t oid, uint64_t tid)
{
    const revision *open = revision_of(s, oid, tid, false);
    return open != NULL ? open : revision_of(s, oid, tid, true);
}

revision *
store_open_revision(const store *s, uint64_t oid)
{
    for (const uint64_t *slot = first_of_oid(s, oid); slot; slot = next_of_oid(s, slot, oid)) {
        revision *r = revision_at(&s->arena, slot_offset(*slot));
        if (!r->closed) {
            return r;
        }
    }
    return NULL;
}

static inline bool
is_visible(const store *s, const revision *r, uint64_t before, bool end_wanted)
{
    return r->tid < before &&
           (r->closed ? before <= revision_end(r) && !(end_wanted && r->bounded)
                      : before - 1 <= s->tier.checkpoint);
}

/* Ask for the lines of a small state while the header is still on its way. */
static inline void
prefetch_state(const revision *r)
{
    for (int line = 1; line <= PREFETCH_LINES; line++) {
        __builtin_prefetch((const char *)r + line * CACHE_LINE_BYTES);
    }
}

static inline const revision *
find_visible(store *s, uint64_t oid, uint64_t before, bool end_wanted)
{
    uint32_t hash = table_hash(oid);
    for (const uint64_t *slot = table_first(&s->table, hash); *slot && slot_hash(*slot) == hash;
         slot++) {
        revision *r = revision_at(&s->arena, slot_offset(*slot));
        prefetch_state(r);
        if (r->oid == oid && is_visible(s, r, before, end_wanted)) {
            if (r->frequency < FREQUENCY_MAX) {
                r->frequency++;
            }
            s->tier.counters.hits++;
            s->tier.counters.file_hits += r->restored;
            return r;
        }
    }
    s->tier.counters.misses++;
    return NULL;
}

const revision *
store_load_before(store *s, uint64_t oid, uint64_t before)
{
    return find_visible(s, oid, before, true);
}

const revision *
store_load_at(store *s, uint64_t oid, uint64_t at)
{
    return find_visible(s, oid, at + 1, false);
}

bool
store_holds(const store *s, uint64_t oid, uint64_t at)
{
    for (const uint64_t *slot = first_of_oid(s, oid); slot; slot = next_of_oid(s, slot, oid)) {
        if (is_visible(s, revision_at(&s->arena, slot_offset(*slot)), at + 1, false)) {
            return true;
        }
    }
    return false;
}

/* Make place for one more closed revision of the oid: the oldest goes if there
 * are as many as there may be.  Return false when the new one is the oldest. */
static bool
bound_revisions(store *s, uint64_t oid, uint64_t tid)
{
    unsigned count = 0;
    const revision *oldest = NULL;
    for (const uint64_t *slot = first_of_oid(s, oid); slot; slot = next_of_oid(s, slot, oid)) {
        const revision *r = revision_at(&s->arena, slot_offset(*slot));
        if (r->closed) {
            count++;
            oldest = oldest == NULL || r->tid < oldest->tid ? r : oldest;
        }
    }
    if (count < REVISIONS_MAX) {
        return true;
    }
    if (tid < oldest->tid) {
        return false;
    }
    drop(s, offset_of(s, oldest));
    return true;
}

/* Move an open revision into a block with room for its end. */
static void
close_at(store *s, revision *r, uint64_t end, bool bounded)
{
    arena *a = &s->arena;
    uint64_t oid = r->oid, tid = r->tid;
    uint32_t state_bytes = revision_state_bytes(r);
    if (!bound_revisions(s, oid, tid)) {
        drop(s, offset_of(s, r));
        return;
    }
    sketch_add(&s->sketch, sketch_hash(oid), r->frequency);
    r->frequency = 0;
    r->bounded = bounded;
    if (r->slack >= sizeof end) {
        store_forget_unsaved(s, r);
        memmove((char *)(r + 1) + sizeof end, r + 1, state_bytes);
        memcpy(r + 1, &end, sizeof end);
        r->closed = 1;
        r->slack -= (uint16_t)sizeof end;
        return;
    }
    segments_unlink(&s->segments, a, offset_of(s, r)); /* no victim meanwhile */
    offset_t block = make_room(s, revision_granules(state_bytes, true));
    r = revision_of(s, oid, tid, false); /* it may have slid */
    if (block) {
        settle(s, block, r, end, revision_state(r), state_bytes, EDEN);
        r = revision_of(s, oid, tid, false); /* or gone, when the table grew */
    }
    if (r != NULL) {
        drop(s, offset_of(s, r));
    }
}

enum verdict { NEW, HELD, CONTRADICTED };

/* Compare with what is held of the oid, so that lives never overlap: an older
 * revision said to live on goes; a newer one wins. */
static enum verdict
reconcile(store *s, uint64_t oid, uint64_t tid, uint64_t end)
{
    const uint64_t *slot = first_of_oid(s, oid);
    while (slot) {
        revision *r = revision_at(&s->arena, slot_offset(*slot));
        if (r->tid == tid) {
            if (end && !r->closed) {
                close_at(s, r, end, false);
            }
            else if (end && r->bounded && end >= revision_end(r)) {
                memcpy(r + 1, &end, sizeof end);
                r->bounded = 0;
            }
            return HELD;
        }
        if (r->tid > tid && (!end || end > r->tid)) {
            return CONTRADICTED;
        }
        if (r->tid < tid && (!r->closed || revision_end(r) > tid)) {
            drop(s, slot_offset(*slot));
            slot = first_of_oid(s, oid);
        }
        else {
            slot = next_of_oid(s, slot, oid);
        }
    }
    return NEW;
}

/* Into eden, making room; what the header says but for the block's own fields. */
static bool
enter(store *s, const revision *header, uint64_t end, const char *state, size_t state_bytes,
      unsigned requests)
{
    if (state_bytes > s->tier.object_max_bytes || (end && end <= header->tid)) {
        return false;
    }
    switch (reconcile(s, header->oid, header->tid, end)) {
    case HELD:
        return true;
    case CONTRADICTED:
        return false;
    case NEW:
        break;
    }
    sketch_add(&s->sketch, sketch_hash(header->oid), requests);
    if (end && !bound_revisions(s, header->oid, header->tid)) {
        return false;
    }
    offset_t block = make_room(s, revision_granules((uint32_t)state_bytes, end != 0));
    if (!block || !settle(s, block, header, end, state, state_bytes, EDEN)) {
        return false;
    }
    s->tier.counters.sets += !header->restored;
    store_settle_eden(s);
    return true;
}

bool
store_insert(store *s, uint64_t oid, uint64_t tid, uint64_t end, const char *state,
             size_t state_bytes)
{
    revision header = {.oid = oid, .tid = tid};
    return enter(s, &header, end, state, state_bytes, 1);
}

bool
store_promote(store *s, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
              unsigned frequency)
{
    frequency = frequency < FREQUENCY_MAX ? frequency : FREQUENCY_MAX;
    revision header = {
        .oid = oid, .tid = tid, .saved = 1, .restored = 1, .told = (uint8_t)frequency & 15};
    unsigned requests = frequency < FREQUENCY_MAX ? frequency + 1 : FREQUENCY_MAX;
    return enter(s, &header, 0, state, state_bytes, requests);
}

bool
store_restore(store *s, uint64_t oid, uint64_t tid, const char *state, size_t state_bytes,
              unsigned frequency)
{
    if (state_bytes > s->tier.object_max_bytes || reconcile(s, oid, tid, 0) != NEW) {
        return true; /* nothing to do, and no reason to stop */
    }
    uint32_t granules = revision_granules((uint32_t)state_bytes, false);
    size_t growth = table_bytes_after_add(&s->table) - table_bytes(&s->table);
    uint32_t spare = (uint32_t)((growth + growth / 4) / GRANULE_BYTES) + 1;
    if (arena_room(&s->arena) < granules + spare) {
        return false;
    }
    offset_t block = arena_allocate(&s->arena, granules);
    if (!block) {
        return false;
    }
    frequency = frequency < FREQUENCY_MAX ? frequency : FREQUENCY_MAX;
    sketch_add(&s->sketch, sketch_hash(oid), frequency);
    bool is_hot = frequency > 1 && s->segments.list[PROTECTED].granules + granules <=
                                       store_protected_target(s);
    revision header = {
        .oid = oid, .tid = tid, .saved = 1, .restored = 1, .told = (uint8_t)frequency & 15};
    return settle(s, block, &header, 0, state, state_bytes, is_hot ? PROTECTED : PROBATION);
}

void
store_end(store *s, uint64_t oid, uint64_t tid, enum ending ending)
{
    revision *r = store_open_revision(s, oid);
    if (r == NULL || r->tid >= tid) {
        return;
    }
    if (ending == ENDED_EXACTLY) {
        close_at(s, r, tid, false);
    }
    else if (ending == ENDED_LATER && r->tid <= s->tier.checkpoint && s->tier.checkpoint < tid) {
        close_at(s, r, s->tier.checkpoint + 1, true);
    }
    else {
        sketch_add(&s->sketch, sketch_hash(oid), r->frequency);
        drop(s, offset_of(s, r));
    }
}

void
store_forget(store *s, uint64_t oid)
{
    const uint64_t *slot;
    while ((slot = first_of_oid(s, oid)) != NULL) {
        drop(s, slot_offset(*slot));
    }
}

void
store_clear(store *s)
{
    table_clear(&s->table);
    sketch_clear(&s->sketch, s->table.home_slots);
    memset(&s->segments, 0, sizeof s->segments);
    s->state_bytes = s->tier.unsaved_bytes = s->unsaved_count = 0;
    s->unsaved_overflow = s->unsaved == NULL;
    arena_clear(&s->arena);
    refit(s);
}

void
store_reserve(store *s, size_t size_bytes)
{
    s->reserved_bytes = size_bytes;
    refit(s);
}
