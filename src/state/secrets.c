/* SPDX-License-Identifier: Apache-2.0 */

/* See secrets.h. */

#include "state/secrets.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "network/policy.h"
#include "proto/handover.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TRUST_PEM ".hermes-trust.pem"
#define TRUST_JKS ".hermes-trust.jks"

/* Programs look for the authorities that they trust in one of these. The request's own
 * variables come first. */
static const char *const variables[] = {
    "SSL_CERT_FILE=/box/" TRUST_PEM,
    "CURL_CA_BUNDLE=/box/" TRUST_PEM,
    "REQUESTS_CA_BUNDLE=/box/" TRUST_PEM,
    "NODE_EXTRA_CA_CERTS=/box/" TRUST_PEM,
    "GIT_SSL_CAINFO=/box/" TRUST_PEM,
    "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/box/" TRUST_JKS
    " -Djavax.net.ssl.trustStoreType=JKS",
};

static bool has_variable(const struct strv *env, const char *assignment)
{
    size_t len = strcspn(assignment, "=") + 1;
    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->items[i], assignment, len) == 0)
            return true;
    }
    return false;
}

static void add_variables(struct strv *env)
{
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (!has_variable(env, variables[i]))
            strv_add(env, variables[i]);
    }
}

static bool is_listed(const struct network_policy *policy, const struct network_entry *entry)
{
    for (uint32_t i = 0; i < policy->entry_count; i++) {
        if (network_entry_has_name(&policy->entries[i], entry->name) &&
            network_entry_has_port(&policy->entries[i], NETWORK_TCP, entry->first_port))
            return true;
    }
    return false;
}

/* A secret brings its host with it: without a network, the box reaches just that. */
static int add_secret(
    struct network_policy **policy, const struct secret_def *def, uint32_t bit, struct err *err)
{
    if (!*policy)
        *policy = network_policy_new(NETWORK_ALLOW);
    struct network_policy *p = *policy;
    p->secrets |= bit;
    if (p->mode == NETWORK_FULL || is_listed(p, &def->entry))
        return 0;
    if (p->entry_count == NETWORK_MAX_ENTRIES)
        return err_field(err, "secrets",
            "with the hosts of the secrets, network.allow has more than %d entries",
            (int)NETWORK_MAX_ENTRIES);
    p->entries[p->entry_count++] = def->entry;
    return 0;
}

/* Two secrets for one host must have two headers. */
static const struct secret_def *find_rival(
    const struct secret_table *table, uint32_t secrets, const struct secret_def *def)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct secret_def *other = &table->items[i];
        if (secrets >> i & 1 && strcasecmp(other->header, def->header) == 0 &&
            str_eq(other->entry.name, def->entry.name) &&
            other->entry.first_port == def->entry.first_port)
            return other;
    }
    return NULL;
}

static int take_name(const struct state *s, const char *key, const char *name,
    struct network_policy **policy, uint32_t *secrets, struct err *err)
{
    const struct secret_table *table = &s->config.secrets;
    int index = secret_table_find(table, name, key);
    if (index < 0)
        return err_set(err, ERR_FORBIDDEN, EACCES,
            "there is no secret `%.64s` that this key may use; the operator names secrets and "
            "their keys in the configuration",
            name);
    const struct secret_def *def = &table->items[index];
    const struct secret_def *rival = find_rival(table, *secrets, def);
    if (rival == def)
        return err_field(err, "secrets", "the secret `%.64s` is named twice", name);
    if (rival)
        return err_field(err, "secrets",
            "the secrets `%.64s` and `%.64s` are the same header of the same host; name one",
            rival->name, name);
    *secrets |= 1u << index;
    return add_secret(policy, def, 1u << index, err);
}

int state_secrets_apply(const struct state *state, int owner, const struct strv *names,
    const char *field, const struct secrets_target *to, struct err *err)
{
    const char *key = state_owner_name(state, owner);
    uint32_t secrets = 0;
    for (size_t i = 0; i < names->count; i++) {
        int r = take_name(state, key, names->items[i], to->policy, &secrets, err);
        if (r < 0) {
            (void)snprintf(err->field, sizeof(err->field), "%s", field);
            return r;
        }
    }
    if (secrets) {
        add_variables(to->env);
        *to->trust = &state->trust;
    }
    return 0;
}

int state_secrets_apply_run(const struct state *state, int owner, struct run_spec *spec,
    const char *field, struct err *err)
{
    const struct secrets_target to = {&spec->network, &spec->env, &spec->trust};
    return state_secrets_apply(state, owner, &spec->secrets, field, &to, err);
}

int state_secrets_keep(const struct state *state, uint32_t secrets,
    struct network_policy **policy, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < state->config.secrets.count; i++) {
        if (secrets >> i & 1)
            r = add_secret(policy, &state->config.secrets.items[i], 1u << i, err);
    }
    return r;
}

int state_secrets_read_trust(struct state *state, int fd, struct err *err)
{
    cleanup_buf struct buf text;
    struct handover_trust head = {0};
    buf_init(&text, HANDOVER_MAX_TEXT);
    int r = handover_read_text(fd, &text);
    if (r == 0 && text.len == 0)
        return 0; /* there are no secrets */
    if (r == 0 && text.len >= sizeof(head))
        memcpy(&head, text.data, sizeof(head));
    if (r < 0 || text.len < sizeof(head) || head.pem_len > text.len - sizeof(head))
        return err_set(err, ERR_INTERNAL, EBADMSG, "cannot read the authorities of secrets");
    const char *pem = text.data + sizeof(head);
    size_t jks_len = text.len - sizeof(head) - head.pem_len;
    char *content = xmalloc(head.pem_len);
    memcpy(content, pem, head.pem_len);
    run_files_add(&state->trust, TRUST_PEM, content, head.pem_len, false);
    content = xmalloc(jks_len);
    memcpy(content, pem + head.pem_len, jks_len);
    run_files_add(&state->trust, TRUST_JKS, content, jks_len, false);
    return 0;
}
