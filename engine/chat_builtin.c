/*
 * Chat formats by name, for --chat-template NAME: files without a template, or with one that can't
 * be run. Written here after each family's published markup; what a model's own template adds
 * (tools, dates, default texts) isn't in them. ChatML has no source: chat.c prints it.
 */
#include <string.h>

#include "engine/chat_impl.h"

#define EACH "{% for m in messages %}"
#define END "{% endfor %}"
#define PROMPT(text) "{% if add_generation_prompt %}{{ '" text "' }}{% endif %}"
#define NO_SYSTEM                                                                                  \
    "{% if m.role == 'system' %}{{ raise_exception('This format has no system messages') }}"       \
    "{% endif %}"
#define IN_TURN                                                                                    \
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"                                        \
    "{{ raise_exception('In this format user and assistant speak in turn') }}{% endif %}"
#define BAR "\xEF\xBD\x9C"
#define GAP "\xE2\x96\x81"
#define DEEPSEEK(name) "<" BAR name BAR ">"

static const struct chat_builtin builtins[] = {
    {"llama3", "<|start_header_id|>",
     "{{ bos_token }}" EACH "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ "
     "m.content | trim ~ '<|eot_id|>' }}" END PROMPT(
         "<|start_header_id|>assistant<|end_header_id|>\\n\\n")},
    {"llama2", NULL,
     "{% if messages[0].role == 'system' %}{% set start = '<<SYS>>\\n' ~ messages[0].content ~ "
     "'\\n<</SYS>>\\n\\n' %}{% set rest = messages[1:] %}{% else %}{% set start = '' %}"
     "{% set rest = messages %}{% endif %}{% for m in rest %}" IN_TURN NO_SYSTEM
     "{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ (start if loop.first else '') ~ "
     "m.content | trim ~ ' [/INST]' }}{% else %}{{ ' ' ~ m.content | trim ~ ' ' ~ eos_token }}"
     "{% endif %}" END},
    {"mistral", "[INST]",
     "{{ bos_token }}" EACH NO_SYSTEM IN_TURN "{% if m.role == 'user' %}"
     "{{ '[INST] ' ~ m.content ~ '[/INST]' }}{% else %}{{ ' ' ~ m.content ~ eos_token }}"
     "{% endif %}" END},
    {"mistral-tekken", "[INST]",
     "{{ bos_token }}" EACH NO_SYSTEM IN_TURN "{% if m.role == 'user' %}"
     "{{ '[INST]' ~ m.content ~ '[/INST]' }}{% else %}{{ m.content ~ eos_token }}"
     "{% endif %}" END},
    {"gemma", "<start_of_turn>",
     "{{ bos_token }}" EACH NO_SYSTEM IN_TURN
     "{{ '<start_of_turn>' ~ ('model' if m.role == 'assistant' else 'user') ~ '\\n' ~ "
     "m.content | trim ~ '<end_of_turn>\\n' }}" END PROMPT("<start_of_turn>model\\n")},
    {"phi3", "<|assistant|>",
     EACH
     "{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ '<|end|>\\n' }}" END PROMPT("<|assistant|>\\n")},
    {"phi4", "<|im_sep|>",
     EACH "{{ '<|im_start|>' ~ m.role ~ '<|im_sep|>' ~ m.content ~ '<|im_end|>' }}" END PROMPT(
         "<|im_start|>assistant<|im_sep|>")},
    {"zephyr", NULL,
     EACH "{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ eos_token ~ '\\n' }}" END PROMPT(
         "<|assistant|>\\n")},
    {"granite", "<|start_of_role|>",
     EACH "{{ '<|start_of_role|>' ~ m.role ~ '<|end_of_role|>' ~ m.content ~ "
          "'<|end_of_text|>\\n' }}" END PROMPT("<|start_of_role|>assistant<|end_of_role|>")},
    {"deepseek", DEEPSEEK("Assistant"),
     "{{ bos_token }}" EACH "{% if m.role == 'user' %}{{ '" DEEPSEEK(
         "User") "' ~ m.content }}"
                 "{% elif m.role == 'assistant' %}{{ '" DEEPSEEK(
                     "Assistant") "' ~ "
                                  "m.content.split('</think>')[-1] ~ '" DEEPSEEK(
                                      "end" GAP "of" GAP
                                      "sentence") "' }}"
                                                  "{% else %}{{ m.content }}{% endif %}" END PROMPT(
                                                      DEEPSEEK("Assistant"))},
    {"command-r", "<|START_OF_TURN_TOKEN|>",
     "{{ bos_token }}" EACH
     "{{ '<|START_OF_TURN_TOKEN|>' ~ {'system': '<|SYSTEM_TOKEN|>', 'user': '<|USER_TOKEN|>', "
     "'assistant': '<|CHATBOT_TOKEN|>'}[m.role] ~ m.content | trim ~ '<|END_OF_TURN_TOKEN|>' }}" END
         PROMPT("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")},
    {"vicuna", NULL,
     "{{ bos_token }}" EACH "{% if m.role == 'user' %}{{ 'USER: ' ~ m.content | trim ~ ' ' }}"
     "{% elif m.role == 'assistant' %}{{ 'ASSISTANT: ' ~ m.content | trim ~ eos_token }}"
     "{% else %}{{ m.content | trim ~ '\\n\\n' }}{% endif %}" END PROMPT("ASSISTANT:")},
};
#define N_BUILTINS (sizeof builtins / sizeof *builtins)

const struct chat_builtin *chat_builtin_find(const char *name)
{
    for (size_t i = 0; i < N_BUILTINS; i++)
        if (strcmp(builtins[i].name, name) == 0)
            return &builtins[i];
    return NULL;
}

const char *chat_builtin_name(size_t i)
{
    return i == 0 ? CHAT_FAMILY : i <= N_BUILTINS ? builtins[i - 1].name : NULL;
}

void chat_builtin_names(char *ret, size_t n)
{
    struct buf names;
    buf_init(&names, n);
    for (size_t i = 0; chat_builtin_name(i); i++)
        buf_printf(&names, "%s%s", i > 0 ? ", " : "", chat_builtin_name(i));
    const size_t len = names.error ? 0 : names.len < n ? names.len : n - 1;
    memcpy(ret, len > 0 ? names.data : "", len);
    ret[len] = 0;
    buf_done(&names);
}
