/* SPDX-License-Identifier: Apache-2.0 */

/* See image.h. A hermes-setup of its own makes the mounts (setup/image.c), in a few
 * milliseconds, for which the spawner waits: an image's root is made once and used by many
 * boxes. */

#include "spawn/image.h"

#include "base/cleanup.h"
#include "spawn/box.h"
#include "spawn/request.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

bool image_exists(const struct spawner *s, uint32_t root)
{
    return root >= SPAWN_MAX_ROOTS && root < SPAWN_MAX_ROOTS + SPAWN_MAX_IMAGES &&
           s->roots[root].ns_fd > 0;
}

/* Fills in image->fds: the mount namespace, then the locks. */
static int make_mounts(struct spawner *s, const struct spawn_image *request, struct image *to)
{
    const struct setup_image_order order = {.kind = SETUP_IMAGE,
        .protocol = SPAWN_PROTOCOL,
        .source = s->images.source + !s->sealed,
        .image = *request};
    struct setup helper = {.program_fd = s->helper.program_fd, .socket = -1};
    struct setup_answer answer;
    int r = setup_call_with(&helper, &order, sizeof(order), &s->roots[request->root].ns_fd, 1,
        &answer, to->fds, 1 + SPAWN_MAX_LAYERS, &to->fd_count);
    setup_end(&helper);
    return r == 0 && to->fd_count != 1 + request->count ? -EPROTO : r;
}

static void close_all(struct image *image)
{
    while (image->fd_count)
        close_fd(&image->fds[--image->fd_count]);
}

/* Before the seal: a root of the table. Its locks are held as long as the spawner lives. */
static int add(struct spawner *s, const struct spawn_image *request, uint32_t *ret)
{
    struct image image = {0};
    if (!s->images.has_source || s->ids.rootless || s->root_count == SPAWN_MAX_ROOTS)
        return -EOPNOTSUPP;
    int r = make_mounts(s, request, &image);
    if (r < 0) {
        close_all(&image);
        return r;
    }
    *ret = s->root_count++;
    s->roots[*ret] = s->roots[request->root];
    s->roots[*ret].ns_fd = image.fds[0];
    return 0;
}

/* A free number. A client that lets a root go and asks for another one is served, although the
 * end of its socket may come after the request. */
static uint32_t find_room(struct spawner *s)
{
    uint32_t root = SPAWN_MAX_ROOTS;
    while (root < SPAWN_MAX_ROOTS + SPAWN_MAX_IMAGES && image_exists(s, root)) {
        image_check(s, root);
        root += image_exists(s, root);
    }
    return root;
}

static int make(struct spawner *s, const struct spawn_image *request, int socket, uint32_t *ret)
{
    uint32_t root = find_room(s);
    if (root == SPAWN_MAX_ROOTS + SPAWN_MAX_IMAGES)
        return -ENOSPC;
    if (!s->images.has_source || s->ids.rootless)
        return -EOPNOTSUPP;
    struct image *image = &s->images.items[root - SPAWN_MAX_ROOTS];
    struct epoll_event e = {
        .events = EPOLLIN, .data.u64 = (uint64_t)root * TAG_COUNT + TAG_IMAGE};
    int r = make_mounts(s, request, image);
    if (r == 0 && epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, socket, &e) < 0)
        r = -errno;
    if (r < 0) {
        close_all(image);
        return r;
    }
    s->roots[root] = s->roots[request->root];
    s->roots[root].ns_fd = image->fds[0];
    image->socket = socket;
    *ret = root;
    return 0;
}

void image_make(
    struct spawner *s, const struct spawn_image *request, int *fds, unsigned fd_count)
{
    struct spawn_image_reply reply = {.error = -EINVAL};
    if (request_image_ok(s, request, fds, fd_count))
        reply.error =
            s->sealed ? make(s, request, fds[0], &reply.root) : add(s, request, &reply.root);
    if (fd_count)
        (void)send(fds[0], &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (reply.error == 0 && s->sealed)
        (void)take_fd(&fds[0]);
}

void image_join(struct spawner *s, const struct box *box, uint32_t root, int socket)
{
    const struct setup_order order = {.kind = SETUP_JOIN, .protocol = SPAWN_PROTOCOL};
    struct spawn_image_reply reply = {.error = -EINVAL, .root = root};
    struct setup helper = {.program_fd = s->helper.program_fd, .socket = -1};
    struct setup_answer answer;
    unsigned count;
    if (image_exists(s, root)) {
        const int fds[] = {s->roots[root].ns_fd, box->pidfd};
        reply.error =
            setup_call_with(&helper, &order, sizeof(order), fds, 2, &answer, NULL, 0, &count);
        setup_end(&helper);
    }
    (void)send(socket, &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void image_check(struct spawner *s, uint32_t root)
{
    if (!image_exists(s, root))
        return;
    struct image *image = &s->images.items[root - SPAWN_MAX_ROOTS];
    struct pollfd end = {.fd = image->socket, .events = POLLIN};
    if (poll(&end, 1, 0) != 1) /* an event of the root that had this number before */
        return;
    if (s->current_ns == s->roots[root].ns_fd) /* the number will be another file's */
        s->current_ns = -1;
    s->roots[root] = (struct tree){0};
    close_fd(&image->socket);
    close_all(image);
}
