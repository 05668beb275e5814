/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-monitor: `hermes serve` executes it. It reports all problems of the settings at once,
 * before it starts anything. */

#include "monitor/monitor.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/str.h"
#include "lang/rootfs.h"
#include "state/memory_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Network namespaces kept ready. Enough for a burst; each costs Linux about 100 KiB. */
enum { NETWORKS_READY = 4 };

enum {
    EXIT_SETTINGS = 2,
    MEMORY_SHARE = 80,    /* percent of the machine's memory that boxes may be promised */
    PROCESSES_SHARE = 50, /* percent of the machine's processes that boxes may have */
    HELP_MAX = 1 << 20,   /* bytes of the help text */
    FREE_ID_FIRST = 65520,
    FREE_ID_LAST = 65533,
};

static void print_text(int (*write_text)(struct buf *to), const char *before)
{
    cleanup_buf struct buf text;
    buf_init(&text, HELP_MAX);
    (void)write_text(&text);
    (void)printf("%s%s", before, text.data ? text.data : "");
}

/* Answers `--help` and `--settings` (the table of docs/configuration.md). */
static bool answer_only(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (str_eq(argv[i], "--help") || str_eq(argv[i], "-h")) {
            print_text(config_help,
                "usage: hermes serve [--SETTING VALUE]...\n\n"
                "Serves the HTTP API on 127.0.0.1:8000.\n\n"
                "Exit status: 0 after SIGTERM or Ctrl-C; 2 invalid settings; "
                "125 when Hermes itself failed.\n\n");
            return true;
        }
        if (str_eq(argv[i], "--settings")) {
            print_text(config_document, "");
            return true;
        }
    }
    return false;
}

/* An unused user id. Not `nobody`: other services run as that user and could read the server's
 * files. Distributions leave these ids free (systemd's table of uids, Debian's policy), and
 * they exist in a container with 65,536 ids too. */
static uid_t find_free_id(void)
{
    for (uid_t id = FREE_ID_FIRST; id <= FREE_ID_LAST; id++) {
        if (!getpwuid(id) && !getgrgid(id))
            return id;
    }
    return 0;
}

/* Chooses the server's user: the configured one, else `hermes`, else an unused id. */
static void choose_user(struct monitor *m, struct strv *problems)
{
    m->uid = geteuid();
    m->gid = getegid();
    if (m->uid != 0)
        return;
    const char *named = m->config.user;
    uint32_t number;
    const struct passwd *user = named[0] ? getpwnam(named) : getpwnam("hermes");
    if (user && user->pw_uid != 0) {
        m->uid = user->pw_uid;
        m->gid = user->pw_gid;
    } else if (!named[0] && (number = find_free_id()) != 0) {
        m->uid = m->gid = number;
    } else if (named[0] && str_parse_u32(named, &number) == 0 && number != 0) {
        m->uid = m->gid = number;
    } else {
        strv_add_owned(problems,
            xasprintf("user: there is no user `%s`, or it is root; name one, or run: useradd "
                      "--system --no-create-home hermes",
                named[0] ? named : "hermes"));
    }
    char *chosen = user ? xstrdup(user->pw_name) : xasprintf("%u", m->uid);
    free(m->config.user);
    m->config.user = chosen;
}

/* Reports everything that is wrong with the settings themselves. */
static int read_settings(struct monitor *m, int argc, char **argv)
{
    struct strv problems = {0};
    (void)config_load(&m->config, argc, argv, &problems);
    config_keys(&m->config, &m->keys, &problems);
    listen_check(m, &problems);
    choose_user(m, &problems);
    for (size_t i = 0; i < problems.count; i++)
        (void)fprintf(stderr, "hermes serve: %s\n", problems.items[i]);
    bool bad = problems.count > 0;
    strv_done(&problems);
    return bad ? -EINVAL : 0;
}

/* The state directory belongs to root. Only `server` in it belongs to the server: otherwise the
 * server could replace the root trees that boxes see. */
static int open_state(struct monitor *m, struct err *err)
{
    cleanup_free char *state = NULL;
    if (m->config.state_dir[0])
        (void)setenv("HERMES_STATE_DIR", m->config.state_dir, 1);
    cleanup_close int fd = root_state_dir(&state, err);
    if (fd < 0)
        return fd;
    m->lock_fd = openat(fd, "serve.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (m->lock_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, errno, "%s: %s", state, strerror(errno));
    if (flock(m->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, ERR_UNAVAILABLE, EBUSY,
            "another hermes serve uses %s; give this one its own with --state-dir", state);
    m->server_dir = xasprintf("%s/server", state);
    if ((geteuid() == 0 && fchmod(fd, 0711) < 0) ||
        (mkdirat(fd, "server", 0700) < 0 && errno != EEXIST))
        return err_set(err, ERR_UNAVAILABLE, errno, "%s: %s", m->server_dir, strerror(errno));
    int r = fs_give_tree(fd, "server", m->uid, m->gid);
    if (r < 0)
        return err_set(err, ERR_UNAVAILABLE, -r, "cannot give %s to user %u: %s", m->server_dir,
            m->uid, strerror(-r));
    free(m->config.state_dir);
    m->config.state_dir = xstrdup(m->server_dir);
    return 0;
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

static int prepare(struct monitor *m, struct err *err)
{
    struct memory_plan plan;
    int r = open_state(m, err);
    if (r == 0)
        r = runtime_load(&m->runtimes, NULL, err);
    if (r < 0)
        return r;
    runtime_find_versions(&m->runtimes);
    fit_machine(&m->config);
    if ((r = memory_plan_make(&m->config, &plan, err)) < 0)
        return r;
    m->config.server_memory_mb = plan.limit_mb;
    m->engine_options.runtimes = &m->runtimes;
    m->engine_options.min_level = (unsigned)m->config.min_level;
    m->engine_options.networks = NETWORKS_READY;
    m->engine_options.zygotes = m->config.warm;
    m->engine_options.park = (unsigned)m->config.parked;
    m->engine_options.session_park = (unsigned)m->config.session_parked;
    m->engine_options.session_warm = m->config.session_warm;
    m->engine_options.park_free_percent = (unsigned)m->config.parked_free_percent;
    m->engine_options.maxima = m->config.maxima;
    m->engine_options.processes_total = (uint32_t)m->config.processes_total;
    m->engine_options.source_count = m->config.mounts.count;
    for (size_t i = 0; i < m->config.mounts.count; i++) {
        m->engine_options.sources[i].path = m->config.mounts.items[i].path;
        m->engine_options.sources[i].writable = m->config.mounts.items[i].writable;
    }
    return listen_open(m, err);
}

int main(int argc, char **argv)
{
    static struct monitor monitor;
    struct err err = {0};
    if (answer_only(argc, argv))
        return 0;
    (void)signal(SIGPIPE, SIG_IGN);
    monitor.lock_fd = -1;
    monitor.memory_group.fd = monitor.memory_group.parent_fd = -1;
    if (read_settings(&monitor, argc, argv) < 0)
        return EXIT_SETTINGS;
    int status;
    if (prepare(&monitor, &err) == 0) {
        status = supervise(&monitor);
    } else {
        (void)fprintf(
            stderr, "hermes serve: %s%s%s\n", err.field, err.field[0] ? ": " : "", err.message);
        status = err_table[err.code].exit_status;
    }
    listen_close(&monitor);
    buf_done(&monitor.table);
    runtime_registry_done(&monitor.runtimes);
    keys_done(&monitor.keys);
    config_done(&monitor.config);
    free(monitor.server_dir);
    close_fd(&monitor.lock_fd);
    return status;
}
