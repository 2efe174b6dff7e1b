#define _DEFAULT_SOURCE
#include "pages.h"

#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

void *
pages_reserve(size_t size_bytes)
{
    void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

void
pages_prefer_huge(void *base, size_t size_bytes)
{
#ifdef MADV_HUGEPAGE
    (void)madvise(base, size_bytes, MADV_HUGEPAGE);
#else
    (void)base;
    (void)size_bytes;
#endif
}

void
pages_release(void *base, size_t from_bytes, size_t to_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t from = (from_bytes + page - 1) / page * page;
    size_t to = to_bytes / page * page;
    if (from < to) {
        (void)madvise((char *)base + from, to - from, MADV_DONTNEED);
    }
}

void
pages_free(void *base, size_t size_bytes)
{
    if (base != NULL) {
        (void)munmap(base, size_bytes);
    }
}
