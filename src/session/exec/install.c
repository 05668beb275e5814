/* SPDX-License-Identifier: Apache-2.0 */

/* Packages that the code of an exec asks for (`%pip install`). A thread of its own builds them,
 * as POST /v1/sessions/{id}/packages does. The holder of the session reads the log of the build
 * beside the output of the code; at its end it mounts the layers in the box and answers the
 * interpreter. Whatever ends the exec ends the build. */

#include "session/exec/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/thread.h"
#include "run/encode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct session_install {
    struct session *s;
    json_int_t id; /* as the interpreter has called it */
    json_t *packages;
    bool is_quiet;
    int log[2]; /* the holder reads, the thread writes; its end is the end of the build */
    int cancel_fd;
    bool has_thread;
    pthread_t thread;
    /* These three belong to the thread until it is joined. */
    struct session_build build;
    int result;
    struct err err;
    json_t *answer; /* for the interpreter; NULL: not yet */
};

static void pass_log(void *context, const char *data, size_t len)
{
    const struct session_install *in = context;
    while (len && !in->is_quiet) {
        ssize_t n = send(in->log[1], data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
}

static void *build_thread(void *context)
{
    struct session_install *in = context;
    struct sessions *all = in->s->all;
    in->result = all->build(all->state, in->s, &in->build, &in->err);
    (void)shutdown(in->log[1], SHUT_WR);
    return NULL;
}

static void join(struct session_install *in)
{
    if (in->has_thread)
        (void)pthread_join(in->thread, NULL);
    in->has_thread = false;
}

static void free_install(struct session_install *in)
{
    join(in);
    run_image_free(in->build.layers);
    json_decref(in->build.installed);
    json_decref(in->packages);
    json_decref(in->answer);
    close_fd(&in->log[0]);
    close_fd(&in->log[1]);
    close_fd(&in->cancel_fd);
    free(in);
}

static int start(struct session_install *in)
{
    struct session *s = in->s;
    if (s->tools.preview)
        return err_set(
            &in->err, ERR_UNSUPPORTED, EPERM, "packages cannot be installed in a preview");
    if (!s->all->build || s->spec.place)
        return err_set(&in->err, ERR_UNSUPPORTED, ENOSYS,
            "packages cannot be installed in this session: it does not run in a box of this "
            "server");
    in->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (in->cancel_fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in->log) < 0)
        return err_set(&in->err, err_code_of(errno), errno, "packages cannot be installed: %s",
            strerror(errno));
    in->build = (struct session_build){
        .packages = in->packages, .log = pass_log, .context = in, .cancel_fd = in->cancel_fd};
    int r = thread_start(&in->thread, build_thread, in);
    in->has_thread = r == 0;
    return r == 0 ? 0
                  : err_set(&in->err, ERR_UNAVAILABLE, -r,
                        "the server has no thread left; try again later");
}

/* Ends the installation and answers the interpreter. The holder of the session mounts the
 * layers here. */
static void conclude(struct session_install *in)
{
    struct run_image *layers = in->build.layers;
    in->build.layers = NULL;
    if (in->result == 0 && layers)
        in->result = session_join(in->s, layers, &in->err);
    else
        run_image_free(layers);
    const char *why = in->err.message; /* the message can quote any bytes of a build */
    in->answer = in->result < 0
                     ? json_pack("{s:I, s:o}", "id", in->id, "error",
                           result_text_json(why, strlen(why), ENCODE_UTF8))
                     : json_pack("{s:I, s:O}", "id", in->id, "installed", in->build.installed);
    close_fd(&in->log[0]);
}

int install_begin(struct session *s, json_t *frame)
{
    json_int_t id;
    int is_quiet;
    json_t *packages;
    if (json_unpack(frame, "{s:I, s:b, s:o !}", "id", &id, "quiet", &is_quiet, "packages",
            &packages) < 0)
        return -EBADMSG;
    install_end(s); /* an installation that an interrupt has ended */
    struct session_install *in = xcalloc(1, sizeof(*in));
    *in = (struct session_install){.s = s,
        .id = id,
        .packages = json_incref(packages),
        .is_quiet = is_quiet,
        .log = {-1, -1},
        .cancel_fd = -1};
    s->install = in;
    int r = start(in);
    if (r < 0) { /* otherwise the result is the thread's to set */
        in->result = r;
        conclude(in);
    }
    return 0;
}

void install_cancel(const struct session *s)
{
    if (s->install && s->install->cancel_fd >= 0)
        (void)eventfd_write(s->install->cancel_fd, 1);
}

void install_end(struct session *s)
{
    if (!s->install)
        return;
    install_cancel(s);
    close_fd(&s->install->log[0]); /* the thread must not wait for a reader */
    free_install(s->install);
    s->install = NULL;
}

int install_fd(const struct session *s)
{
    return s->install ? s->install->log[0] : -1;
}

ssize_t install_read(struct session *s, char *to, size_t size)
{
    struct session_install *in = s->install;
    ssize_t n = recv(in->log[0], to, size, MSG_DONTWAIT);
    if (n == 0) {
        join(in);
        conclude(in);
    }
    return n;
}

bool install_is_open(const struct session *s)
{
    return s->install;
}

bool install_has_news(const struct session *s)
{
    return s->install && s->install->answer;
}

int install_pass(struct session *s)
{
    if (!install_has_news(s))
        return 0;
    cleanup_free char *text = json_dumps(s->install->answer, JSON_COMPACT);
    int r = text ? channel_queue(&s->channel, "installed", text, strlen(text)) : -ENOMEM;
    install_end(s);
    return r;
}
