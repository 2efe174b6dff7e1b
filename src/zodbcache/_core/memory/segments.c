#include "segments.h"

#include <assert.h>

void
segments_link(segments *s, const arena *a, offset_t block, enum segment_id id)
{
    segment *list = &s->list[id];
    revision *r = revision_at(a, block);
    assert(r->segment == UNLINKED);
    r->segment = (uint8_t)id;
    r->newer = 0;
    r->older = list->head;
    if (list->head) {
        revision_at(a, list->head)->newer = block;
    }
    else {
        list->tail = block;
    }
    list->head = block;
    list->count++;
    list->granules += r->extent >> 2;
}

void
segments_unlink(segments *s, const arena *a, offset_t block)
{
    revision *r = revision_at(a, block);
    assert(r->segment < SEGMENTS);
    segment *list = &s->list[r->segment];
    *(r->newer ? &revision_at(a, r->newer)->older : &list->head) = r->older;
    *(r->older ? &revision_at(a, r->older)->newer : &list->tail) = r->newer;
    list->count--;
    list->granules -= r->extent >> 2;
    r->newer = r->older = 0;
    r->segment = UNLINKED;
}

void
segments_moved(segments *s, const arena *a, offset_t block)
{
    const revision *r = revision_at(a, block);
    if (r->segment == UNLINKED) {
        return;
    }
    segment *list = &s->list[r->segment];
    *(r->newer ? &revision_at(a, r->newer)->older : &list->head) = block;
    *(r->older ? &revision_at(a, r->older)->newer : &list->tail) = block;
}

const char *
segments_check(const segments *s, const arena *a)
{
    for (unsigned id = 0; id < SEGMENTS; id++) {
        const segment *list = &s->list[id];
        uint32_t count = 0, granules = 0;
        offset_t newer = 0;
        for (offset_t b = list->head; b; b = revision_at(a, b)->older) {
            const revision *r = revision_at(a, b);
            if (r->segment != id || r->newer != newer) {
                return "a revision is linked where it does not belong";
            }
            if (++count > list->count) {
                return "a segment runs in a circle";
            }
            granules += r->extent >> 2;
            newer = b;
        }
        if (list->tail != newer || count != list->count || granules != list->granules) {
            return "a segment is miscounted";
        }
    }
    return NULL;
}
