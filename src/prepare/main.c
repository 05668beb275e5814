/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-prepare: see prepare.h. `hermes serve` executes it. It reports all problems of the
 * settings at once, before it starts anything. */

#include "prepare/prepare.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/log.h"
#include "base/os/fs.h"
#include "base/os/machine.h"
#include "base/str.h"
#include "base/wrap.h"
#include "image/store.h"
#include "lang/seed.h"
#include "lang/state_dir.h"
#include "state/memory_plan.h"
#include "state/terminal_config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EXIT_SETTINGS = 2,
    MEMORY_SHARE = 80,    /* percent of the machine's memory that boxes may be promised */
    PROCESSES_SHARE = 50, /* percent of the machine's processes that boxes may have */
    HELP_MAX = 1 << 20,   /* bytes of the help text */
};

static int write_help(struct buf *to)
{
    int width = wrap_width();
    int r = wrap_text(to,
        "usage: hermes serve [--SETTING VALUE]...\n\n"
        "Serves the HTTP API on 127.0.0.1:8000.\n\n"
        "Exit status: 0 after SIGTERM or Ctrl-C; 2 invalid settings; 125 when Hermes itself "
        "failed.\n",
        0, 0, width);
    return r < 0 ? r : config_help(to, width);
}

static void print_text(int (*write_text)(struct buf *to))
{
    cleanup_buf struct buf text;
    buf_init(&text, HELP_MAX);
    (void)write_text(&text);
    (void)fputs(text.data ? text.data : "", stdout);
}

/* Answers `--help` and `--settings` (the table of docs/configuration.md). */
static bool answer_only(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (str_eq(argv[i], "--help") || str_eq(argv[i], "-h")) {
            print_text(write_help);
            return true;
        }
        if (str_eq(argv[i], "--settings")) {
            print_text(config_document);
            return true;
        }
    }
    return false;
}

/* Reports everything that is wrong with the settings themselves. */
static int read_settings(struct prepare *p, int argc, char **argv)
{
    struct strv problems = {0};
    (void)config_load(&p->config, argc, argv, terminal_config_read, &problems);
    config_keys(&p->config, &p->keys, &problems);
    listen_check(p, &problems);
    choose_users(p, &problems);
    prepare_network(p, &problems);
    prepare_secrets(p, &problems);
    prepare_reach(p, &problems);
    for (size_t i = 0; i < problems.count; i++)
        (void)fprintf(stderr, "hermes serve: %s\n", problems.items[i]);
    bool bad = problems.count > 0;
    strv_done(&problems);
    return bad ? -EINVAL : 0;
}

/* The spawner gets these directories before the server has started. Root without
 * CAP_DAC_OVERRIDE cannot reach them (-EACCES); there are no images then. */
static int make_images(int state_fd, uid_t uid, gid_t gid)
{
    if (mkdirat(state_fd, "server/images", 0700) < 0 && errno != EEXIST)
        return -errno;
    cleanup_close int fd =
        fs_open_beneath(state_fd, "server/images", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fd;
    return fchown(fd, uid, gid) < 0 ? -errno : image_store_make(fd, uid, gid);
}

/* The name of this installation. It marks its containers on engines that other servers use,
 * too. */
static int name_instance(struct prepare *p, int state_fd)
{
    struct place_table *places = &p->places;
    enum { LEN = sizeof(places->instance) - 1 };
    unsigned char noise[LEN / 2];
    if (!places->count)
        return 0;
    cleanup_buf struct buf text;
    buf_init(&text, LEN + 1);
    if (fs_read_file(state_fd, "instance", &text) < 0 || text.len != LEN ||
        strspn(text.data, "0123456789abcdef") < LEN) {
        id_random(noise, sizeof(noise));
        for (size_t i = 0; i < sizeof(noise); i++)
            (void)snprintf(places->instance + 2 * i, 3, "%02x", noise[i]);
        cleanup_close int fd = openat(
            state_fd, "instance", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        return fd < 0 ? -errno : fs_write_all(fd, places->instance, LEN);
    }
    memcpy(places->instance, text.data, LEN);
    return 0;
}

/* The state directory belongs to root. Only `server` in it belongs to the server: otherwise the
 * server could replace the root trees that boxes see. */
static int open_state(struct prepare *p, struct err *err)
{
    cleanup_free char *state = NULL;
    cleanup_close int fd = state_dir_open(p->config.state_dir, &state, err);
    if (fd < 0)
        return fd;
    p->lock_fd = openat(fd, "serve.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (p->lock_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, errno, "%s: %s", state, strerror(errno));
    if (flock(p->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, ERR_UNAVAILABLE, EBUSY,
            "another hermes serve uses %s; give this one its own with --state-dir", state);
    /* for `hermes image build --operator`; our pid stays that of the monitor */
    if (ftruncate(p->lock_fd, 0) < 0 || dprintf(p->lock_fd, "%d\n", (int)getpid()) < 0)
        return err_set(
            err, ERR_UNAVAILABLE, errno, "%s/serve.lock: %s", state, strerror(errno));
    if ((geteuid() == 0 && fchmod(fd, 0711) < 0) ||
        (mkdirat(fd, "server", 0700) < 0 && errno != EEXIST))
        return err_set(err, ERR_UNAVAILABLE, errno, "%s/server: %s", state, strerror(errno));
    int r = name_instance(p, fd);
    if (r < 0)
        return err_set(err, ERR_UNAVAILABLE, -r, "%s/instance: %s", state, strerror(-r));
    r = fs_give_tree(fd, "server", p->uid, p->gid);
    if (r < 0)
        return err_set(err, ERR_UNAVAILABLE, -r, "cannot give %s/server to user %u: %s", state,
            p->uid, strerror(-r));
    if (geteuid() == 0 && (r = make_images(fd, p->uid, p->gid)) < 0 && r != -EACCES)
        return err_set(err, ERR_UNAVAILABLE, -r, "%s/server/images: %s", state, strerror(-r));
    free(p->config.state_dir);
    p->config.state_dir = take_ptr(state);
    return 0;
}

/* Without a directory for seeds, compilers are slower, and the log says why. */
static void open_seeds(struct prepare *p)
{
    char *path = NULL;
    struct err err = {0};
    if (seeds_open(p->config.seed_dir, p->uid, p->gid, &path, &err) < 0) {
        log_event(LOG_WARN, "there are no seeds", "reason", err.message, (char *)NULL);
        path = xstrdup("");
    }
    free(p->config.seed_dir);
    p->config.seed_dir = path;
}

/* Bounds the maxima by the machine, and leaves processes to the host. */
static void fit_machine(struct config *c)
{
    if (!c->memory_mb)
        c->memory_mb = machine_memory_mb() * MEMORY_SHARE / 100;
    if (!c->processes_total)
        c->processes_total = machine_processes() * PROCESSES_SHARE / 100;
    if (c->maxima.processes > c->processes_total)
        c->maxima.processes = (uint32_t)c->processes_total;
    if (c->maxima.memory_mb > c->memory_mb)
        c->maxima.memory_mb = c->memory_mb;
    if (c->maxima.disk_mb > c->maxima.memory_mb)
        c->maxima.disk_mb = c->maxima.memory_mb;
}

static int prepare(struct prepare *p, struct err *err)
{
    int r = open_state(p, err);
    if (r < 0)
        return r;
    open_seeds(p);
    fit_machine(&p->config);
    p->config.server_memory_mb = memory_plan_make(&p->config).limit_mb;
    if ((r = listen_open(p, err)) == 0)
        r = become_monitor(p, err);
    listen_close(p);
    return r;
}

int main(int argc, char **argv)
{
    static struct prepare p = {.lock_fd = -1};
    struct err err = {0};
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && str_eq(argv[1], "table"))
        return prepare_table();
    if (answer_only(argc, argv))
        return 0;
    if (read_settings(&p, argc, argv) < 0)
        return EXIT_SETTINGS;
    (void)prepare(&p, &err); /* returns only on failure */
    (void)fprintf(
        stderr, "hermes serve: %s%s%s\n", err.field, err.field[0] ? ": " : "", err.message);
    return err_table[err.code].exit_status;
}
