/* SPDX-License-Identifier: Apache-2.0 */

/* See effects.h. */

#include "state/effects.h"

#include "network/entry.h"
#include "network/hub.h"

#include <errno.h>
#include <stdlib.h>

json_t *effects_box(const struct state *s, const struct effects_request *request)
{
    const struct network_policy *network = request->network;
    json_t *mounts = json_array();
    json_t *secrets = json_array();
    for (size_t i = 0; i < request->mount_count; i++) {
        const struct run_mount *mount = &request->mounts[i];
        (void)json_array_append_new(mounts,
            json_pack("{s:s, s:s, s:b}", "name", s->config.mounts.items[mount->source].name,
                "path", mount->path, "writable", mount->writable));
    }
    for (size_t i = 0; network && i < s->config.secrets.count; i++) {
        if (network->secrets >> i & 1)
            (void)json_array_append_new(secrets, json_string(s->config.secrets.items[i].name));
    }
    return json_pack("{s:s, s:o, s:o}", "network",
        network_mode_name(network ? network->mode : NETWORK_NONE), "mounts", mounts, "secrets",
        secrets);
}

/* Takes `fields`. */
static int ask_one(struct state *s, enum effect_kind kind, json_t *fields,
    const struct approval_asker *asker, struct effects *effects, struct err *err)
{
    struct effect effect = {0};
    int r = effect_make(kind, fields, &effect, err);
    json_decref(fields);
    if (r < 0)
        return r;
    if (effects->count == EFFECTS_MAX)
        r = err_set(
            err, ERR_TOO_LARGE, E2BIG, "the request has too many writable mounts and secrets");
    if (r == 0)
        r = approvals_ask(s->approvals, &effect, asker, &effects->items[effects->count], err);
    if (r == 0)
        r = approval_verdict(effects->items[effects->count++], err);
    effect_done(&effect);
    return r == -EAGAIN ? 0 : r;
}

static int ask_mounts(struct state *s, const struct effects_request *request,
    const struct approval_asker *asker, struct effects *effects, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < request->mount_count; i++) {
        const struct run_mount *mount = &request->mounts[i];
        if (mount->writable)
            r = ask_one(s, EFFECT_MOUNT_RW,
                json_pack("{s:s, s:s}", "mount", s->config.mounts.items[mount->source].name,
                    "path", mount->path),
                asker, effects, err);
    }
    return r;
}

static int ask_secrets(struct state *s, const struct effects_request *request,
    const struct approval_asker *asker, struct effects *effects, struct err *err)
{
    uint32_t secrets = request->network ? request->network->secrets : 0;
    const char *place = request->session ? request->session : request->run;
    int r = 0;
    for (size_t i = 0; r == 0 && i < s->config.secrets.count; i++) {
        const struct secret_def *def = &s->config.secrets.items[i];
        if (secrets >> i & 1)
            r = ask_one(s, EFFECT_SECRET_USE,
                json_pack("{s:s, s:s, s:s, s:s?}", "secret", def->name, "host", def->entry.name,
                    "header", def->header, "box", place),
                asker, effects, err);
    }
    return r;
}

static bool has_effects(const struct effects_request *request)
{
    bool has = request->network && request->network->secrets;
    for (size_t i = 0; i < request->mount_count; i++)
        has = has || request->mounts[i].writable;
    return has;
}

int effects_ask(struct state *s, const struct effects_request *request, struct effects *effects,
    struct err *err)
{
    if (!has_effects(request))
        return 0;
    json_t *box = effects_box(s, request);
    const struct approval_asker asker = {.owner = state_owner_name(s, request->owner),
        .run = request->run,
        .session = request->session,
        .box = box};
    int r = ask_mounts(s, request, &asker, effects, err);
    if (r == 0)
        r = ask_secrets(s, request, &asker, effects, err);
    json_decref(box);
    return r;
}

struct network_asker *effects_asker(
    const struct state *s, const struct effects_request *request)
{
    if (!request->network || request->network->mode != NETWORK_ASK)
        return NULL;
    return network_asker_new(state_owner_name(s, request->owner), request->run,
        request->session, effects_box(s, request));
}

bool effects_are_pending(const struct effects *effects)
{
    bool is_pending = false;
    for (size_t i = 0; i < effects->count; i++)
        is_pending = is_pending || approval_verdict(effects->items[i], NULL) == -EAGAIN;
    return is_pending;
}

int effects_wait(struct state *s, struct effects *effects, struct admit_ticket *ticket,
    int cancel_fd, struct err *err)
{
    bool is_pending = effects_are_pending(effects);
    int r = 0;
    if (is_pending && ticket)
        admit_drop(s->admit, ticket);
    for (size_t i = 0; r == 0 && i < effects->count; i++)
        r = approval_wait(effects->items[i], cancel_fd, err);
    for (size_t i = 0; r < 0 && i < effects->count; i++)
        approval_leave(effects->items[i]);
    if (r == 0 && is_pending && ticket)
        admit_resume(s->admit, ticket);
    if (r < 0 && !is_pending && ticket)
        admit_drop(s->admit, ticket);
    return r;
}

/* Effects that were allowed without a question or a rule are left out. */
char *effects_text(const struct effects *effects, const struct network_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < effects->count; i++) {
        if (approval_id(effects->items[i])[0])
            (void)json_array_append_new(list, approval_json(effects->items[i]));
    }
    network_report_list_approvals(report, &list);
    char *text = json_array_size(list) ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    return text;
}

void effects_done(struct effects *effects)
{
    for (size_t i = 0; i < effects->count; i++)
        approval_drop(effects->items[i]);
    effects->count = 0;
}
