/* SPDX-License-Identifier: Apache-2.0 */

/* The last step of `hermes serve`: exec. The monitor gets facts, texts and sockets, and an
 * environment without secrets. Its memory holds nothing that was parsed here. */

#include "prepare/prepare.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REACH_MEMORY_MB = 256 }; /* of hermes-reach */

extern char **environ;

static bool is_secret(const char *variable)
{
    for (size_t row = 0; row < config_count; row++) {
        const struct config_row *r = &config_table[row];
        for (size_t k = 0; k < CONFIG_MAX_ENV && r->env[k]; k++) {
            size_t len = strlen(r->env[k]);
            if (r->secrecy != CONFIG_PUBLIC && strncmp(variable, r->env[k], len) == 0 &&
                variable[len] == '=')
                return true;
        }
    }
    return false;
}

/* Our environment without secret settings. */
static char **public_environment(void)
{
    size_t count = 0;
    while (environ[count])
        count++;
    char **env = xcalloc(count + 1, sizeof(*env));
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_secret(environ[i]))
            env[used++] = environ[i];
    }
    return env;
}

static int write_facts(const struct prepare *p)
{
    const struct config *c = &p->config;
    struct handover_plan plan = {.uid = p->uid,
        .gid = p->gid,
        .grace_ms = c->grace_s * 1000,
        .server_memory_mb = c->server_memory_mb,
        .has_egress = p->ceiling.max_mode != NETWORK_NONE,
        .egress_uid = p->egress_uid,
        .egress_gid = p->egress_gid,
        .egress_cpu_milli = (uint32_t)c->network_cpus,
        .egress_memory_mb = c->network_memory_mb,
        .has_secrets = p->secrets.len > 0,
        .inject_uid = p->inject_uid,
        .inject_gid = p->inject_gid,
        .outside = {[OUTSIDE_REACH] = {.is_wanted = p->reach.rows[REACH_REVIEWER].url[0] ||
                                                    p->reach.rows[REACH_WEBHOOK].url[0],
                        .memory_mb = REACH_MEMORY_MB,
                        .uid = p->reach_uid,
                        .gid = p->reach_gid},
            [OUTSIDE_PLACES] = {.is_wanted = p->places.count > 0,
                .memory_mb = c->backends_memory_mb,
                .uid = p->places_uid,
                .gid = p->places_gid,
                .may_gain = place_table_may_gain(&p->places)}}};
    (void)snprintf(plan.log_level, sizeof(plan.log_level), "%s", c->log_level);
    if (p->made_unix) /* listen.c has checked its length */
        (void)snprintf(plan.unix_path, sizeof(plan.unix_path), "%.107s", c->unix_path);
    return fs_memfd_sealed("plan", &plan, sizeof(plan));
}

static int write_places(const struct prepare *p)
{
    cleanup_buf struct buf table;
    buf_init(&table, sizeof(p->places) + p->shell.len);
    if (buf_append(&table, &p->places, sizeof(p->places)) < 0 ||
        (p->shell.len && buf_append(&table, p->shell.data, p->shell.len) < 0))
        return -ENOMEM;
    return fs_memfd_sealed("places", table.data, table.len);
}

/* Puts the plan into the socket; it stays there until the monitor reads it. */
static int send_plan(const struct prepare *p, int socket)
{
    cleanup_buf struct buf settings;
    cleanup_buf struct buf keys;
    int fds[FDPASS_MAX];
    buf_init(&settings, HANDOVER_MAX_TEXT);
    buf_init(&keys, HANDOVER_MAX_TEXT);
    int r = config_write(&p->config, &settings);
    if (r == 0)
        r = keys_write(&p->keys, &keys);
    if (r < 0)
        return r;
    cleanup_close int facts_fd = write_facts(p);
    cleanup_close int settings_fd = handover_write_text("settings", &settings);
    cleanup_close int keys_fd = handover_write_text("keys", &keys);
    cleanup_close int ceiling_fd = fs_memfd_sealed("ceiling", &p->ceiling, sizeof(p->ceiling));
    cleanup_close int secrets_fd = handover_write_text("secrets", &p->secrets);
    cleanup_close int trust_fd = handover_write_text("trust", &p->trust);
    cleanup_close int reach_fd = fs_memfd_sealed("reach", &p->reach, sizeof(p->reach));
    cleanup_close int places_fd = write_places(p);
    if (facts_fd < 0 || settings_fd < 0 || keys_fd < 0 || ceiling_fd < 0 || secrets_fd < 0 ||
        trust_fd < 0 || reach_fd < 0 || places_fd < 0)
        return -ENOMEM;
    fds[PLAN_FACTS] = facts_fd;
    fds[PLAN_SETTINGS] = settings_fd;
    fds[PLAN_KEYS] = keys_fd;
    fds[PLAN_CEILING] = ceiling_fd;
    fds[PLAN_SECRETS] = secrets_fd;
    fds[PLAN_TRUST] = trust_fd;
    fds[PLAN_REACH] = reach_fd;
    fds[PLAN_PLACES] = places_fd;
    fds[PLAN_LOCK] = p->lock_fd;
    memcpy(fds + PLAN_LISTEN, p->listen_fds, p->listen_count * sizeof(*fds));
    return handover_send(socket, HANDOVER_PLAN, fds, PLAN_LISTEN + p->listen_count);
}

int become_monitor(struct prepare *p, struct err *err)
{
    char *argv[] = {(char *)"hermes-monitor", NULL};
    cleanup_free char *path = fs_beside_self(argv[0]);
    int pair[2];
    if (!path || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_INTERNAL, errno, "cannot make a socket: %s", strerror(errno));
    int r = send_plan(p, pair[0]);
    if (r < 0)
        return err_set(
            err, ERR_INTERNAL, -r, "cannot hand over the settings: %s", strerror(-r));
    /* dup2 onto itself would keep close-on-exec. The descriptor may already have the number
     * HANDOVER_FD. */
    if (pair[1] == HANDOVER_FD ? fcntl(HANDOVER_FD, F_SETFD, 0) < 0
                               : dup2(pair[1], HANDOVER_FD) < 0)
        return err_set(err, ERR_INTERNAL, errno, "cannot move a socket: %s", strerror(errno));
    (void)execve(path, argv, public_environment());
    return err_set(err, ERR_UNAVAILABLE, errno,
        "cannot start %s: %s; it belongs beside the hermes program", path, strerror(errno));
}
