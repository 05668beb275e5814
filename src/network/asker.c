/* SPDX-License-Identifier: Apache-2.0 */

/* See hub.h: on whose behalf a box asks for a destination. Apart from the hub, because every
 * struct run_spec may have one. */

#include "base/alloc.h"
#include "network/hub.h"

#include <stdlib.h>

struct network_asker *network_asker_new(
    const char *owner, const char *run, const char *session, json_t *box)
{
    struct network_asker *asker = xcalloc(1, sizeof(*asker));
    asker->owner = xstrdup(owner);
    asker->run = xstrdup(run ? run : "");
    asker->session = xstrdup(session ? session : "");
    asker->box = box;
    return asker;
}

struct network_asker *network_asker_copy(const struct network_asker *asker)
{
    if (!asker)
        return NULL;
    return network_asker_new(asker->owner, asker->run, asker->session, json_incref(asker->box));
}

void network_asker_free(struct network_asker *asker)
{
    if (!asker)
        return;
    free(asker->owner);
    free(asker->run);
    free(asker->session);
    json_decref(asker->box);
    free(asker);
}
