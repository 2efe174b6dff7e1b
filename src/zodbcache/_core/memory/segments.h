/* The lists of the segmented LRU, linked by offsets inside the revisions.
 *
 * Eden takes what is new; probation what left eden, or fell from protected;
 * protected what was read again while in probation.  segments_link and
 * segments_unlink alone touch links, counts and granules.  Both O(1).
 */
#ifndef ZODBCACHE_SEGMENTS_H
#define ZODBCACHE_SEGMENTS_H

#include "arena.h"
#include "revision.h"

typedef struct {
    offset_t head; /* entered last */
    offset_t tail; /* next to be looked at */
    uint32_t count;
    uint32_t granules;
} segment;

typedef struct {
    segment list[SEGMENTS];
} segments;

/* At the head.  The revision is UNLINKED. */
void segments_link(segments *s, const arena *a, offset_t block, enum segment_id id);

/* The revision is UNLINKED afterwards. */
void segments_unlink(segments *s, const arena *a, offset_t block);

/* The revision now lies at block; its links came along.  Mends its neighbours' links. */
void segments_moved(segments *s, const arena *a, offset_t block);

const char *segments_check(const segments *s, const arena *a);

#endif
