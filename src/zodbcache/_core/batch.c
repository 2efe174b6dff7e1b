#include "batch.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROWS = 16, FIRST_STATES_BYTES = 4096 };

void
batch_close(batch *b)
{
    free(b->rows);
    free(b->states);
    memset(b, 0, sizeof *b);
}

static bool
grow(void **memory, size_t *capacity, size_t needed, size_t size, size_t first)
{
    if (needed <= *capacity) {
        return true;
    }
    size_t wanted = *capacity ? 2 * *capacity : first;
    wanted = wanted < needed ? needed : wanted;
    void *grown = realloc(*memory, wanted * size);
    if (grown == NULL) {
        return false;
    }
    *memory = grown;
    *capacity = wanted;
    return true;
}

bool
batch_add(batch *b, uint64_t oid, uint64_t tid, int64_t frequency, const void *state,
          size_t state_bytes)
{
    void *rows = b->rows, *states = b->states;
    bool good = grow(&rows, &b->capacity, b->count + 1, sizeof *b->rows, FIRST_ROWS);
    b->rows = rows;
    good = good && grow(&states, &b->states_capacity, b->states_bytes + state_bytes, 1,
                        FIRST_STATES_BYTES);
    b->states = states;
    if (!good) {
        return false;
    }
    if (state_bytes) {
        memcpy(b->states + b->states_bytes, state, state_bytes);
    }
    b->rows[b->count++] = (batch_row){oid, tid, frequency, (uint32_t)state_bytes, b->states_bytes};
    b->states_bytes += state_bytes;
    return true;
}
