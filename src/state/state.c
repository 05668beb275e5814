/* SPDX-License-Identifier: Apache-2.0 */

/* See state.h. */

#include "state/state.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>

/* How long a request waits for a spawner that is being replaced. The monitor needs far less. */
enum { SPAWNER_WAIT_MS = 5000 };

struct history_owner state_owner(const struct state *state, int owner)
{
    return (struct history_owner){.name = state_owner_name(state, owner), .index = owner};
}

const char *state_owner_name(const struct state *state, int owner)
{
    return owner < 0 ? "" : state->keys.items[owner].name;
}

bool state_is_operator(const struct state *state, int owner)
{
    if (state->keys.count == 0)
        return true;
    return owner >= 0 && state->keys.items[owner].role == KEY_OPERATOR;
}

struct approval_viewer state_viewer(const struct state *state, int owner)
{
    return (struct approval_viewer){
        .name = state_owner_name(state, owner), .is_operator = state_is_operator(state, owner)};
}

int state_full(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, ENOMEM,
        "the server holds as many requests and replies as it has memory for; try again later");
}

int state_wait_for_spawner(struct state *s, int cancel_fd, struct err *err)
{
    uint64_t until = clock_ms() + SPAWNER_WAIT_MS;
    while (!engine_is_alive(s->engine)) {
        struct pollfd cancel = {.fd = cancel_fd, .events = POLLIN};
        if (poll(&cancel, 1, 10) > 0)
            return -ECANCELED;
        if (clock_ms() > until || s->stopping)
            return err_set(err, ERR_UNAVAILABLE, EPIPE,
                "the spawner is being restarted; try again in a moment");
    }
    return 0;
}
