/* Who has to go when there is no room: segmented LRU over lines of entries. */
#include "tempstore.h"

enum { PROTECTED_PERCENT = 80 };

/* How much is written before the pages are counted again: a share of the limit. */
enum { COUNT_SHARE = 64, COUNT_MAX_BYTES = 1 << 20 };

/* A row that comes between others may take so many pages, splitting theirs. */
enum { SPLIT_PAGES = 3 };

/* Pages of a database without rows. */
enum { EMPTY_PAGES = 8 };

/* So many are evicted at most before they are counted again. */
enum { EVICT_AT_ONCE = 64 };

/* Stale entries are dealt with when there are more than revisions, and so many. */
enum { STALE_MIN = 8 * LINE_PLACES, STALE_AT_ONCE = 8 };

static size_t
budget(const tempstore *s)
{
    size_t limit = s->tier.limit_bytes < s->room_bytes ? s->tier.limit_bytes : s->room_bytes;
    return limit > s->reserved_bytes ? limit - s->reserved_bytes : 0;
}

size_t
room_protected_target(const tempstore *s)
{
    return budget(s) / 100 * PROTECTED_PERCENT;
}

/* Of what is there: pages are never full, so that the rows add up to less than the limit. */
static size_t
protected_share(const tempstore *s)
{
    size_t all = s->queues[TEMP_PROBATION].bytes + s->queues[TEMP_PROTECTED].bytes;
    return all / 100 * PROTECTED_PERCENT;
}

/* What protected holds too much goes back to probation, unless it was asked for
 * since it came. */
static void
demote_overflow(tempstore *s)
{
    uint64_t oid, place;
    uint8_t heat;
    while (s->fault == SQLITE_OK && s->queues[TEMP_PROTECTED].bytes > protected_share(s) &&
           queue_take(s, TEMP_PROTECTED, &oid, &place, &heat)) {
        row r;
        if (row_look_at(s, oid, place, &r)) {
            unsigned frequency = heat_frequency(heat), hits = heat_hits(heat);
            if (hits) {
                row_move(s, &r, TEMP_PROTECTED, heat_of(frequency, hits / 2));
            }
            else {
                row_move(s, &r, TEMP_PROBATION, heat_of(frequency / 2, 0));
            }
        }
    }
}

/* How many bytes went; 0 when nothing is left. */
static size_t
evict_one(tempstore *s)
{
    uint64_t oid, place;
    uint8_t heat;
    row r;
    while (s->fault == SQLITE_OK) {
        demote_overflow(s);
        if (!queue_take(s, TEMP_PROBATION, &oid, &place, &heat)) {
            if (!queue_take(s, TEMP_PROTECTED, &oid, &place, &heat)) {
                return 0;
            }
            heat = 0;
        }
        if (!row_look_at(s, oid, place, &r)) {
            continue;
        }
        if (heat_hits(heat)) {
            row_move(s, &r, TEMP_PROTECTED, heat_of(heat_frequency(heat), 0));
            continue;
        }
        row_drop(s, &r);
        s->tier.counters.evictions++;
        return row_bytes(r.state_bytes);
    }
    return 0;
}

static size_t
count_share(const tempstore *s)
{
    size_t share = s->tier.limit_bytes / COUNT_SHARE, least = SPLIT_PAGES * s->page_bytes;
    return share < least ? least : share > COUNT_MAX_BYTES ? COUNT_MAX_BYTES : share;
}

void
room_count_pages(tempstore *s)
{
    size_t bytes = tempdb_bytes(s);
    if (s->fault == SQLITE_OK) {
        s->known_bytes = bytes;
        s->added_bytes = s->added_rows = 0;
    }
}

/* What a state takes in pages, at most: its own ones if it is long. */
static size_t
pages_for(const tempstore *s, size_t state_bytes)
{
    size_t bytes = row_bytes(state_bytes);
    return bytes > s->page_bytes / 4 ? bytes + 2 * s->page_bytes : bytes;
}

/* Evict about so many bytes.  Returns false when nothing is left. */
static bool
evict(tempstore *s, size_t bytes)
{
    size_t gone = 0;
    for (int i = 0; i < EVICT_AT_ONCE && gone < bytes; i++) {
        size_t more = evict_one(s);
        if (!more) {
            return false;
        }
        gone += more;
    }
    return true;
}

bool
room_make(tempstore *s, size_t state_bytes, bool may_evict)
{
    size_t share = count_share(s), wanted = pages_for(s, state_bytes) + share;
    if (state_bytes && wanted + EMPTY_PAGES * s->page_bytes > budget(s)) {
        return false; /* whatever is evicted */
    }
    if (s->known_bytes + s->added_bytes + wanted <= budget(s) && s->added_bytes < share &&
        (s->added_rows + 1) * SPLIT_PAGES * s->page_bytes <= share) {
        return true;
    }
    room_count_pages(s);
    /* More than is needed now, so that the pages are not counted each time. */
    size_t spare = s->known_bytes + wanted > budget(s) ? share / 2 : 0;
    while (s->fault == SQLITE_OK && s->known_bytes + wanted + spare > budget(s)) {
        size_t most = budget(s) > wanted + spare ? budget(s) - wanted - spare : 0;
        if (!may_evict || !evict(s, s->known_bytes - most)) {
            return false;
        }
        room_count_pages(s);
    }
    return s->fault == SQLITE_OK;
}

/* Where objects change all the time and nothing is evicted, stale entries would
 * become ever more. */
void
room_clear_stale(tempstore *s)
{
    size_t count = s->current_count + s->ended_count;
    if (queue_entries(s) <= 2 * count + STALE_MIN) {
        return;
    }
    for (unsigned segment = 0; segment < TEMP_SEGMENTS; segment++) {
        for (int i = 0; i < STALE_AT_ONCE; i++) {
            uint64_t oid, place;
            uint8_t heat;
            row r;
            if (!queue_take(s, segment, &oid, &place, &heat)) {
                break;
            }
            if (row_look_at(s, oid, place, &r)) {
                row_move(s, &r, segment, heat);
            }
        }
    }
}
