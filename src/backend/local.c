/* SPDX-License-Identifier: Apache-2.0 */

/* This machine, as the user of hermes-places, without any isolation. */

#include "backend/backend.h"

static enum place_error local_stream(
    struct backend *b, const char *script, struct backend_stream *ret)
{
    if (b->row->may_gain)
        return backend_spawned(b, backend_ask(b, script, ret));
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)script, NULL};
    return backend_spawned(b, backend_spawn(argv, NULL, ret));
}

static enum place_error local_judge(struct backend *b, const char *said)
{
    (void)b;
    (void)said;
    return PLACE_REFUSED;
}

const struct backend_ops backend_local = {.stream = local_stream, .judge = local_judge};
