/* SPDX-License-Identifier: Apache-2.0 */

/* The tables of hermes-reach and hermes-places, from the settings. The key of the reviewer is
 * read here and goes into the first only: no other program has it. */

#include "prepare/prepare.h"

#include "approval/mode.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <fcntl.h>
#include <grp.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WEBHOOK_MS = 10000, SHELL_MAX = 16 << 20 };

static void complain(struct strv *problems, const char *key, const char *why)
{
    strv_add_owned(problems, xasprintf("settings: %s: %s", key, why));
}

static void take_url(
    struct reach_row *row, const char *key, const char *url, struct strv *problems)
{
    bool is_web = str_has_prefix(url, "https://") || str_has_prefix(url, "http://");
    if (url[0] && (!is_web || strlen(url) >= sizeof(row->url) || url[strcspn(url, " \t\r\n@")]))
        complain(problems, key, "this is not an http or https address without user and spaces");
    else
        (void)snprintf(row->url, sizeof(row->url), "%s", url);
}

static void take_key(struct reach_row *row, const char *path, struct strv *problems)
{
    cleanup_buf struct buf text;
    struct err err = {0};
    buf_init(&text, sizeof(row->key) - 1);
    if (!path[0])
        return;
    if (fs_read_trusted(path, &text, &err) < 0) {
        complain(problems, "reviewer_key_file", err.message);
        return;
    }
    size_t len = text.data ? strcspn(text.data, "\r\n") : 0;
    for (size_t i = 0; i < len; i++) {
        if (text.data[i] <= ' ' || text.data[i] >= 0x7f) {
            complain(problems, "reviewer_key_file", "a key is printable ASCII without spaces");
            return;
        }
    }
    if (len == 0)
        complain(problems, "reviewer_key_file", "the file is empty");
    (void)snprintf(row->key, sizeof(row->key), "%.*s", (int)len, text.data ? text.data : "");
}

static bool is_key(const struct prepare *p, const char *name, size_t len)
{
    for (size_t i = 0; i < p->keys.count; i++)
        if (strlen(p->keys.items[i].name) == len &&
            strncmp(p->keys.items[i].name, name, len) == 0)
            return true;
    return false;
}

static void check_approvers(const struct prepare *p, struct strv *problems)
{
    const char *list = p->config.approvers;
    while (*list) {
        size_t skip = strspn(list, " ,");
        size_t len = strcspn(list + skip, " ,");
        if (len && !is_key(p, list + skip, len))
            strv_add_owned(
                problems, xasprintf("settings: approvers: there is no key named `%.*s`",
                              (int)len, list + skip));
        list += skip + len;
    }
}

/* A key that is not there is no error, because keys come and go. But its backend may be one
 * that nobody can use. */
static void note_unknown_keys(const struct prepare *p, const struct place_row *row)
{
    cleanup_free char *list = xstrdup(row->keys);
    for (char *at = list, *name; (name = strsep(&at, ", "));)
        if (name[0] && !str_eq(name, "*") && !is_key(p, name, strlen(name)))
            log_event(LOG_WARN, "a backend is for a key that this server does not have",
                "backend", row->name, "key", name, "for_all_callers", "keys = *", (char *)NULL);
}

/* Adds the values of the variables that a row forwards to the sealed table. */
static void forward(struct place_row *row, struct strv *problems)
{
    cleanup_free char *list = xstrdup(row->forward_env);
    for (char *at = list, *name; (name = strsep(&at, ", "));) {
        const char *value = name[0] ? getenv(name) : NULL;
        size_t left = sizeof(row->forwarded) - row->forwarded_len;
        if (!value)
            continue;
        int n = snprintf(row->forwarded + row->forwarded_len, left, "%s=%s", name, value);
        if ((size_t)n + 1 > left) {
            complain(problems, row->name, "the variables of docker_forward_env are too long");
            return;
        }
        row->forwarded_len += (uint32_t)n + 1;
    }
}

/* hermes-places gets the group of the socket, and no other right to it. */
static void take_group(struct prepare *p, struct strv *problems)
{
    const struct place_table *places = &p->places;
    const struct group *docker = getgrnam("docker");
    bool has_local = false, has_group = false;
    gid_t gid = p->places_gid;
    for (uint32_t i = 0; i < places->count; i++) {
        const struct place_row *row = &places->rows[i];
        struct stat st;
        has_local = has_local || row->kind == PLACE_LOCAL;
        if (row->kind != PLACE_DOCKER)
            continue;
        bool is_there = stat(row->socket, &st) == 0 && S_ISSOCK(st.st_mode);
        gid_t wanted = is_there ? st.st_gid : docker ? docker->gr_gid : 0;
        if (!wanted || (is_there && (st.st_mode & S_IWOTH || !(st.st_mode & S_IWGRP))))
            continue;
        if (has_group && wanted != gid)
            complain(problems, row->name,
                "its docker_socket has another group than that of the other rows");
        has_group = true;
        gid = wanted;
    }
    if (geteuid() != 0 || !has_group)
        return;
    if (has_local)
        strv_add(problems, "settings: backends of the kinds local and docker on one server: "
                           "local commands could use the engine's socket, which is as good as "
                           "root; use two servers");
    p->places_gid = gid;
}

/* Adds the far shell to the table: hermes-places may be unable to read the file. */
static void take_places(struct prepare *p, struct strv *problems)
{
    struct place_table *places = &p->places;
    struct sha256_ctx hash;
    uint8_t digest[SHA256_DIGEST_SIZE];
    *places = p->config.places;
    if (!places->count)
        return;
    for (uint32_t i = 0; i < places->count; i++)
        if (places->rows[i].kind == PLACE_PLUGIN && !places->rows[i].command[0])
            strv_add_owned(problems,
                xasprintf("settings: [backend %s]: command is missing: the program that speaks "
                          "for the place",
                    places->rows[i].name));
    cleanup_free char *path = fs_beside_self("hermes-shell");
    buf_init(&p->shell, SHELL_MAX);
    if (!path || fs_read_file(AT_FDCWD, path, &p->shell) < 0) {
        strv_add(problems,
            "backends need the program hermes-shell, which belongs beside the hermes program");
        return;
    }
    sha256_init(&hash);
    sha256_update(&hash, p->shell.len, (const uint8_t *)p->shell.data);
    sha256_digest(&hash, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), places->shell_hash);
    places->shell_len = (uint32_t)p->shell.len;
    for (uint32_t i = 0; i < places->count; i++) {
        note_unknown_keys(p, &places->rows[i]);
        forward(&places->rows[i], problems);
    }
    take_group(p, problems);
}

void prepare_reach(struct prepare *p, struct strv *problems)
{
    const struct config *c = &p->config;
    struct reach_row *reviewer = &p->reach.rows[REACH_REVIEWER];
    struct reach_row *webhook = &p->reach.rows[REACH_WEBHOOK];
    bool needs_reviewer =
        c->approval_mode == APPROVAL_SMART || c->approval_mode == APPROVAL_GATED;
    take_url(reviewer, "reviewer_url", c->reviewer_url, problems);
    take_url(webhook, "approval_webhook_url", c->approval_webhook_url, problems);
    take_key(reviewer, c->reviewer_key_file, problems);
    reviewer->timeout_ms = (uint32_t)(c->reviewer_timeout_s * 1000);
    webhook->timeout_ms = WEBHOOK_MS;
    if (needs_reviewer && (!c->reviewer_url[0] || !c->reviewer_model[0]))
        complain(problems, "approval_mode",
            "smart and gated need a reviewer: set reviewer_url and reviewer_model");
    if (!str_eq(c->reviewer_api, "chat") && !str_eq(c->reviewer_api, "responses"))
        complain(problems, "reviewer_api", "it is chat or responses");
    check_approvers(p, problems);
    take_places(p, problems);
}
