/* SPDX-License-Identifier: Apache-2.0 */

/* The secrets of the settings: reads their values and makes what hermes-inject and boxes need.
 * The values go into a sealed memfd, and the exec that follows removes them from this process.
 */

#include "prepare/prepare.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "network/entry.h"
#include "network/policy.h"
#include "prepare/authority.h"
#include "proto/inject.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    VALUE_MIN = 16, /* a shorter value could be guessed: a box sees which bytes of an answer
                       become stars */
    VALUE_MAX = 4096,
    TRUST_MAX = 4 << 20,
};

struct work {
    struct prepare *prepare;
    struct strv *problems;
    struct inject_table table;
    struct buf texts;  /* behind the table */
    struct buf system; /* PEM: authorities of the system, then the authority for boxes */
    struct inject_text system_text; /* authorities of the system, in `texts` */
};

static void complain(struct work *w, const struct secret_def *def, const char *why)
{
    strv_add_owned(w->problems, xasprintf("[secret %s]: %s", def->name, why));
}

static struct inject_text add_text(struct work *w, const char *text, size_t len)
{
    struct inject_text at = {
        .at = (uint32_t)(sizeof(w->table) + w->texts.len), .len = (uint32_t)len};
    if (buf_append(&w->texts, text, len) < 0)
        strv_add(w->problems, "settings: the secrets are too large together");
    return at;
}

/* Others must not be able to read the value. */
static const char *check_mode(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && (st.st_mode & 07)
               ? "every user can read the file of the value; run: chmod o= FILE"
               : NULL;
}

static const char *check_value(const char *value, size_t len)
{
    if (len < VALUE_MIN || len > VALUE_MAX)
        return "the value has 16 to 4096 characters; shorter ones can be guessed";
    for (size_t i = 0; i < len; i++) {
        if (value[i] < 0x20 || value[i] > 0x7e)
            return "the value is one line of printable ASCII characters";
    }
    return value[0] == ' ' || value[len - 1] == ' '
               ? "the value neither begins nor ends with a space"
               : NULL;
}

/* Reads the value, without the end of its line. */
static int read_value(struct work *w, const struct secret_def *def, struct buf *to)
{
    struct err err = {0};
    const char *why = def->file[0] ? NULL : "it needs `file = /PATH` with the value";
    if (!why && fs_read_trusted(def->file, to, &err) < 0)
        why = err.message;
    if (!why)
        why = check_mode(def->file);
    if (!why) {
        if (to->len && to->data[to->len - 1] == '\n')
            to->data[--to->len] = '\0';
        if (to->len && to->data[to->len - 1] == '\r')
            to->data[--to->len] = '\0';
        why = check_value(to->len ? to->data : "", to->len);
    }
    if (why)
        complain(w, def, why);
    return why ? -EINVAL : 0;
}

static void add_value(
    struct work *w, const struct secret_def *def, struct inject_secret *secret)
{
    CLEANUP(buf_done) struct buf value;
    buf_init(&value, VALUE_MAX + 2);
    if (read_value(w, def, &value) < 0)
        return;
    const char *at = strstr(def->format, "{}");
    cleanup_free char *line = xasprintf(
        "%.*s%s%s", (int)(at - def->format), def->format, value.data, at + strlen("{}"));
    secret->line = add_text(w, line, strlen(line));
    secret->value = add_text(w, value.data, value.len);
    explicit_bzero(line, strlen(line));
    explicit_bzero(value.data, value.len);
}

static void add_trust(
    struct work *w, const struct secret_def *def, struct inject_secret *secret)
{
    cleanup_buf struct buf pem;
    cleanup_buf struct buf unused;
    struct err err = {0};
    unsigned count = 0;
    buf_init(&pem, TRUST_MAX);
    buf_init(&unused, TRUST_MAX);
    if (!def->trust[0]) {
        secret->trust = w->system_text;
        if (!w->system_text.len)
            complain(w, def,
                "this system has no authorities; install ca-certificates, or name a file with "
                "`trust = /PATH`");
        return;
    }
    if (fs_read_trusted(def->trust, &pem, &err) < 0) {
        complain(w, def, err.message);
    } else if (!pem.len || authority_write_jks(&pem, &unused, &count, &err) < 0 || !count) {
        complain(w, def, "there is no certificate in the file of `trust`");
    } else {
        secret->trust = add_text(w, pem.data, pem.len);
    }
}

struct key_check {
    struct work *work;
    const struct secret_def *def;
};

static void check_key(void *context, const char *key)
{
    struct key_check *check = context;
    const struct keys *keys = &check->work->prepare->keys;
    bool is_known = str_eq(key, "*");
    for (size_t i = 0; i < keys->count; i++)
        is_known = is_known || str_eq(keys->items[i].name, key);
    cleanup_free char *why = xasprintf("there is no key named `%s`", key);
    if (!is_known)
        complain(check->work, check->def, why);
}

/* Complains about a secret whose host no box may reach: it would have no use. */
static void check_ceiling(struct work *w, const struct secret_def *def)
{
    cleanup_free struct network_policy *policy = network_policy_new(NETWORK_ALLOW);
    struct err err = {0};
    policy->entries[policy->entry_count++] = def->entry;
    if (network_policy_check(policy, &w->prepare->ceiling, &err) < 0)
        complain(w, def, err.message);
}

static void add_secret(struct work *w, const struct secret_def *def)
{
    struct inject_secret *secret = &w->table.secrets[w->table.count];
    struct network_secret *goal = &w->prepare->ceiling.secrets[w->table.count++];
    struct key_check check = {w, def};
    secret_def_keys(def, check_key, &check);
    check_ceiling(w, def);
    goal->port = secret->port = def->entry.first_port;
    memcpy(goal->host, def->entry.name, sizeof(goal->host));
    memcpy(secret->host, def->entry.name, sizeof(secret->host));
    (void)snprintf(secret->header, sizeof(secret->header), "%s", def->header);
    add_value(w, def, secret);
    add_trust(w, def, secret);
}

/* The places where distributions keep the authorities that they trust. */
static void read_system(struct work *w)
{
    static const char *const paths[] = {"/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    struct err err = {0};
    for (size_t i = 0; !w->system.len && i < sizeof(paths) / sizeof(paths[0]); i++)
        (void)fs_read_trusted(paths[i], &w->system, &err);
    if (w->system.len)
        w->system_text = add_text(w, w->system.data, w->system.len);
}

static int make_certificates(struct work *w, struct err *err)
{
    const char *hosts[NETWORK_MAX_SECRETS];
    struct authority_leaf leaves[NETWORK_MAX_SECRETS] = {0};
    for (uint32_t i = 0; i < w->table.count; i++)
        hosts[i] = w->table.secrets[i].host;
    int r = authority_make(hosts, w->table.count, leaves, &w->system, err);
    for (uint32_t i = 0; i < w->table.count; i++) {
        struct authority_leaf *leaf = &leaves[i];
        if (r == 0) {
            struct inject_secret *secret = &w->table.secrets[i];
            secret->certificate = add_text(w, leaf->certificate.data, leaf->certificate.len);
            secret->key = add_text(w, leaf->key.data, leaf->key.len);
        }
        authority_leaf_done(leaf);
    }
    return r;
}

/* Writes the table of hermes-inject, and the authorities for boxes. */
static int write_results(struct work *w, struct err *err)
{
    struct prepare *p = w->prepare;
    cleanup_buf struct buf jks;
    unsigned count;
    buf_init(&jks, TRUST_MAX);
    int r = authority_write_jks(&w->system, &jks, &count, err);
    if (r < 0)
        return r;
    const struct handover_trust head = {.pem_len = w->system.len};
    if (buf_append(&p->secrets, &w->table, sizeof(w->table)) < 0 ||
        buf_append(&p->secrets, w->texts.data, w->texts.len) < 0 ||
        buf_append(&p->trust, &head, sizeof(head)) < 0 ||
        buf_append(&p->trust, w->system.data, w->system.len) < 0 ||
        buf_append(&p->trust, jks.data, jks.len) < 0)
        return err_set(err, ERR_INTERNAL, EMSGSIZE,
            "the secrets and certificates together are too large; remove sections "
            "[secret NAME]");
    return 0;
}

void prepare_secrets(struct prepare *p, struct strv *problems)
{
    const struct secret_table *table = &p->config.secrets;
    struct err err = {0};
    size_t before = problems->count;
    buf_init(&p->secrets, INJECT_TABLE_MAX);
    buf_init(&p->trust, HANDOVER_MAX_TEXT);
    if (!table->count || before)
        return;
    struct work *w = xcalloc(1, sizeof(*w));
    w->prepare = p;
    w->problems = problems;
    buf_init(&w->texts, INJECT_TABLE_MAX - sizeof(w->table));
    buf_init(&w->system, TRUST_MAX);
    read_system(w);
    for (size_t i = 0; i < table->count; i++)
        add_secret(w, &table->items[i]);
    p->ceiling.secret_count = w->table.count;
    if (problems->count == before &&
        (make_certificates(w, &err) < 0 || write_results(w, &err) < 0))
        strv_add_owned(problems, xasprintf("secrets: %s", err.message));
    if (w->texts.data)
        explicit_bzero(w->texts.data, w->texts.len);
    buf_done(&w->texts);
    buf_done(&w->system);
    free(w);
}
