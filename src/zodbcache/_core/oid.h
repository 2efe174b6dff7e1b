/* What is said of objects, wherever their revisions are. */
#ifndef ZODBCACHE_OID_H
#define ZODBCACHE_OID_H

#include <stdint.h>

/* How often an object was asked for is counted up to here. */
enum { FREQUENCY_MAX = 15 };

/* What changed: an object, and its tid or a later one. */
typedef struct {
    uint64_t oid;
    uint64_t tid;
} name;

/* A revision, and how often it was asked for beyond what the file has heard of. */
typedef struct {
    uint64_t oid;
    uint64_t tid;
    int64_t gain;
} revision_gain;

/* splitmix64's finalizer (Steele, Lea, Flood, OOPSLA 2014). */
static inline uint64_t
oid_hash(uint64_t oid)
{
    oid ^= oid >> 30;
    oid *= UINT64_C(0xbf58476d1ce4e5b9);
    oid ^= oid >> 27;
    oid *= UINT64_C(0x94d049bb133111eb);
    return oid ^ oid >> 31;
}

#endif
