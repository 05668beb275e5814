/* SPDX-License-Identifier: Apache-2.0 */

/* Asks hermes-places whether a place is there: a request without a session (proto/place.h). The
 * server itself never connects to one. The answer holds for a moment; while one thread asks,
 * others take the last answer. */

#include "session/backend.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "base/utf8.h"
#include "proto/spawn.h"
#include "state/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FRESH_MS = 2000, WAIT_MS = 7000 };

static void close_pair(int (*pair)[2])
{
    close_fd(&(*pair)[0]);
    close_fd(&(*pair)[1]);
}

/* Waits for the event; `words` gets the text of the place. */
static enum place_error await(int socket, int said, char *words, size_t size)
{
    struct spawn_event event = {0};
    struct pollfd ready = {socket, POLLIN, 0};
    if (poll(&ready, 1, WAIT_MS) != 1 ||
        recv(socket, &event, sizeof(event), MSG_DONTWAIT) != (ssize_t)sizeof(event)) {
        (void)snprintf(words, size, "hermes-places does not answer");
        return PLACE_UNREACHABLE;
    }
    if (event.kind == EVENT_STARTED)
        return PLACE_FINE;
    ssize_t n = read(said, words, size - 1);
    words[n > 0 ? n : 0] = '\0';
    words[strcspn(words, "\n")] = '\0';
    words[utf8_floor(words, strlen(words))] = '\0';
    return event.flags < PLACE_ERRORS ? (enum place_error)event.flags : PLACE_LOST;
}

static enum place_error ask(
    const struct state *state, uint32_t number, char *words, size_t size)
{
    static const char request[sizeof(struct place_head) + 1]; /* no session, no words */
    const struct place_request place = {.row = number};
    CLEANUP(close_pair) int socket[2] = {-1, -1};
    CLEANUP(close_pair) int said[2] = {-1, -1};
    cleanup_close int head = fs_memfd_sealed("words", request, sizeof(request));
    int r = -ENFILE;
    words[0] = '\0';
    if (head >= 0 && pipe2(said, O_CLOEXEC | O_NONBLOCK) == 0 &&
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socket) == 0) {
        const int fds[PLACE_FDS] = {[PLACE_WORDS] = head,
            [PLACE_SOCKET] = socket[1],
            [PLACE_OUT] = said[1],
            [PLACE_ERR] = said[1],
            [PLACE_CHANNEL] = said[1]};
        r = fdpass_send_now(state->places_fd, &place, sizeof(place), fds, PLACE_FDS);
        close_fd(&socket[1]);
        close_fd(&said[1]);
    }
    if (r < 0) {
        (void)snprintf(words, size, "hermes-places does not answer");
        return PLACE_UNREACHABLE;
    }
    return await(socket[0], said[0], words, size);
}

void session_backend_probe(const struct state *state, uint32_t number)
{
    struct sessions *all = state->sessions;
    struct backend_seen *seen = &all->seen[number];
    char words[sizeof(seen->probe_words)];
    uint64_t begin_ms = clock_ms();
    if (!place_has_probe(state->config.places.rows[number].kind))
        return;
    (void)pthread_mutex_lock(&all->lock);
    bool is_due =
        !seen->is_probing && (!seen->probed_ms || begin_ms - seen->probed_ms > FRESH_MS);
    seen->is_probing = seen->is_probing || is_due;
    (void)pthread_mutex_unlock(&all->lock);
    if (!is_due)
        return;
    enum place_error error = ask(state, number, words, sizeof(words));
    (void)pthread_mutex_lock(&all->lock);
    seen->is_probing = false;
    seen->probed_ms = clock_ms();
    seen->probe_latency_ms = seen->probed_ms - begin_ms;
    seen->probe_error = error;
    memcpy(seen->probe_words, words, sizeof(words));
    (void)pthread_mutex_unlock(&all->lock);
}

bool session_backend_is_there(const struct state *state, const char *name)
{
    const struct place_table *places = &state->config.places;
    struct sessions *all = state->sessions;
    for (uint32_t i = 0; i < places->count; i++) {
        if (!str_eq(places->rows[i].name, name))
            continue;
        session_backend_probe(state, i);
        (void)pthread_mutex_lock(&all->lock);
        bool is_there = all->seen[i].probed_ms && !all->seen[i].probe_error;
        (void)pthread_mutex_unlock(&all->lock);
        return is_there;
    }
    return false;
}
