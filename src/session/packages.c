/* SPDX-License-Identifier: Apache-2.0 */

/* Packages that a live session gets: the layers of another image are mounted in its box, over
 * what was there, and its interpreter looks there from the next exec on. Its state and its open
 * files stay. What a session has is always one image, so its copies, a new interpreter and a
 * terminal have the same. */

#include "session/internal.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/str.h"
#include "run/engine_state.h"
#include "run/image_root.h"
#include "state/state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { JOIN_MS = 20000 }; /* for the spawner's answer, on a very busy machine */

const struct runtime *session_runtime(const struct session *s)
{
    return s->spec.runtime;
}

int session_owner(const struct session *s)
{
    return s->owner_index;
}

bool session_image(struct session *s, char *to, size_t size)
{
    (void)pthread_mutex_lock(&s->lock);
    bool has_image = s->spec.image;
    (void)snprintf(to, size, "%s", has_image ? s->spec.image->id : "");
    (void)pthread_mutex_unlock(&s->lock);
    return has_image;
}

int session_check(struct session *s, struct err *err)
{
    (void)pthread_mutex_lock(&s->lock);
    int r = session_reach(s, false, err);
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

static int ask_spawner(struct session *s, unsigned root)
{
    const struct spawn_command command = {.kind = COMMAND_IMAGE, .root = root};
    struct spawn_image_reply reply;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    cleanup_close int ours = pair[0];
    (void)pthread_mutex_lock(&s->lock);
    int r = s->box.socket < 0
                ? -EPIPE
                : fdpass_send(s->box.socket, &command, sizeof(command), &pair[1], 1);
    (void)pthread_mutex_unlock(&s->lock);
    (void)close(pair[1]);
    struct pollfd ready = {.fd = ours, .events = POLLIN};
    if (r < 0 || poll(&ready, 1, JOIN_MS) != 1)
        return r < 0 ? r : -ETIMEDOUT;
    return recv(ours, &reply, sizeof(reply), MSG_DONTWAIT) == (ssize_t)sizeof(reply)
               ? reply.error
               : -EPIPE;
}

int session_join(struct session *s, struct run_image *image, struct err *err)
{
    struct engine *engine = s->all->state->engine;
    size_t index = (size_t)(s->spec.runtime - engine->runtimes->items);
    struct image_root *root = NULL;
    const struct image_use use = {.image = image,
        .runtime = s->spec.runtime,
        .base = (uint32_t)engine->roots[index][ROOT_SESSION],
        .owner = s->spec.owner,
        .is_top = s->spec.runtime->run.session_forks};
    int r = image_root_take(engine, &use, &root, err);
    if (r == 0 && (r = ask_spawner(s, image_root_number(root))) < 0)
        (void)err_set(err, r == -EPIPE || r == -ESRCH ? ERR_CONFLICT : err_code_of(-r), -r,
            r == -EPIPE || r == -ESRCH ? "the session ended before its packages were there"
                                       : "the packages cannot be mounted in the session: %s",
            strerror(-r));
    if (r < 0) {
        image_root_give(root);
        run_image_free(image);
        return r;
    }
    (void)pthread_mutex_lock(&s->lock);
    image->former = s->spec.image;
    s->spec.image = image;
    struct image_root *old = s->box.image;
    s->box.image = root;
    (void)pthread_mutex_unlock(&s->lock);
    image_root_give(old);
    return 0;
}

void session_tell_packages(struct session *s)
{
    if (channel_queue(&s->channel, "packages", NULL, 0) == 0)
        (void)channel_write(&s->channel); /* the next exec tells when the interpreter is gone */
}

void session_install_follow(struct session *s, int fd)
{
    (void)pthread_mutex_lock(&s->lock);
    s->install_fd = fd;
    s->used_ms = clock_ms();
    (void)pthread_mutex_unlock(&s->lock);
}

static bool has_image(struct session *s, const char *below)
{
    char id[sizeof(s->spec.image->id)];
    (void)session_image(s, id, sizeof(id));
    return str_eq(id, below);
}

int session_add_packages(struct session *s, const char *below, struct run_image *image,
    int cancel_fd, struct err *err)
{
    int r = session_take(s, true, false, cancel_fd, err);
    if (r == -ECANCELED && !err->code)
        (void)err_set(err, ERR_CONFLICT, ECANCELED, "the installation was cancelled");
    if (r < 0) {
        run_image_free(image);
        return r;
    }
    if (has_image(s, below)) {
        r = session_join(s, image, err);
    } else {
        run_image_free(image);
        r = -EAGAIN;
    }
    if (r == 0)
        session_tell_packages(s);
    session_give(s);
    return r;
}
