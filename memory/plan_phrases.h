/*
 * What people say that carries nothing: greetings, thanks, assent, farewells and a helper's stock
 * endings, in English and Chinese. Lower case, words with one space between them, no punctuation
 * but the apostrophe. Of plan_value.c alone.
 */
#ifndef HEARTH_MEMORY_PLAN_PHRASES_H
#define HEARTH_MEMORY_PLAN_PHRASES_H

enum phrase_kind {
    PHRASE_CHAT,   /* nothing by itself */
    PHRASE_REPLY,  /* nothing, unless something was asked */
    PHRASE_FILLER, /* nothing beside one of the others */
};

struct phrase {
    enum phrase_kind kind;
    const char *words; /* '|' between phrases */
};

static const struct phrase phrases[] = {
    {PHRASE_CHAT,
     "hi|hello|hello there|hi there|hey|hey there|hiya|howdy|yo|greetings|good morning|"
     "good afternoon|good evening|good day|good night|goodnight|morning|bye|bye bye|goodbye|"
     "see you|see you later|see you soon|see you tomorrow|see ya|cya|take care|later|"
     "nice to meet you|pleased to meet you|welcome back"},
    {PHRASE_CHAT,
     "thanks|thank you|thank you so much|thank you very much|thanks a lot|thanks so much|"
     "thanks a million|many thanks|no thanks|no thank you|thx|ty|tysm|cheers|much appreciated|"
     "i appreciate it|appreciate it|that's very kind|you're the best|you're welcome|"
     "you are welcome|my pleasure|it's my pleasure|anytime|any time|don't mention it|not at all|"
     "no problem|no worries|np|you too|same to you|sorry|my bad|excuse me"},
    {PHRASE_CHAT,
     "ok|okay|okey|okie|okey dokey|k|kk|alright|all right|got it|gotcha|i see|makes sense|"
     "that makes sense|understood|noted|cool|nice|great|awesome|perfect|excellent|wonderful|"
     "amazing|lovely|fantastic|brilliant|good|very good|pretty good|well done|good job|nice one|"
     "good to know|sounds good|sounds great|looks good|that's great|that's good|that's nice|"
     "that's cool|that's awesome|that's fine|fair enough|interesting|how interesting|never mind|"
     "nevermind|lol|lmao|rofl|hehe|hmm|hm|mm|mhm|uh|um|oh|ah|wow|whoa|yay|phew|oops|"
     "i agree|agreed|of course|absolutely|exactly|indeed"},
    {PHRASE_CHAT,
     "how are you|how are you doing|how are you today|how are you doing today|how's it going|"
     "how is it going|how have you been|what's up|what's new|sup|i'm fine|i am fine|i'm good|"
     "i'm ok|i'm okay|i'm doing well|i'm doing great|i'm well|not bad|just checking|just saying|"
     "are you there|have a nice day|have a great day|have a good day|have a good one|"
     "have a lovely day|have a good night|have a good weekend|have fun|good luck"},
    {PHRASE_CHAT,
     "happy to help|i'm happy to help|i'm here to help|always happy to help|glad to help|"
     "glad i could help|i'm glad i could help|happy to hear that|glad to hear that|"
     "i'm glad to hear that|glad to hear it|let me know if you need anything else|"
     "let me know if you need any help|let me know if you have any questions|"
     "let me know if you have any other questions|let me know if you have any more questions|"
     "let me know if there's anything else|let me know if i can help|feel free to ask|"
     "if you have any questions|if you have any other questions|if you have any more questions|"
     "if you need anything else|if you need anything|if you need help|just let me know|"
     "is there anything else i can help you with|is there anything else i can do for you|"
     "is there anything else|how can i help|how can i help you|how can i help you today|"
     "how can i assist you|how can i assist you today|how may i help you|what can i do for you|"
     "what can i do for you today"},
    {PHRASE_REPLY,
     "yes|yeah|yep|yup|yes please|sure|sure thing|no|nope|nah|right|correct|fine|true|false|"
     "maybe|perhaps|i think so|i guess|not really|go on|go ahead|continue|please|please do"},
    {PHRASE_FILLER,
     "so|very|much|again|then|there|all|everyone|friend|buddy|my|for|your|the|that|this|it|is|"
     "it's|that's|and|but|now|today|tonight|well|too|just|really|a lot|help|with|to|you|i|me|"
     "now then|by the way|or"},

    {PHRASE_CHAT, "你好|您好|你们好|大家好|嗨|哈喽|哈囉|嘿|早|早上好|早安|上午好|中午好|下午好|晚上好|"
                  "晚安|再见|再見|拜拜|拜|回见|回头见|明天见|待会见|下次见|保重|好久不见|好久不見"},
    {PHRASE_CHAT, "谢谢|謝謝|多谢|多謝|感谢|感謝|谢了|谢谢你|谢谢您|非常感谢|太感谢了|不用了谢谢|"
                  "不客气|不客氣|不用谢|不用謝|不用客气|别客气|没事|沒事|没关系|沒關係|没问题|沒問題|"
                  "辛苦了|辛苦|麻烦你了|麻烦您了|抱歉|对不起|對不起|不好意思"},
    {PHRASE_CHAT, "好的|好吧|好呀|好啊|好嘞|好哒|好滴|行吧|知道了|我知道了|明白|明白了|懂了|了解|"
                  "了解了|收到|原来如此|原來如此|这样啊|這樣啊|是吗|是嗎|真的吗|真的嗎|嗯|嗯嗯|哦|噢|喔|"
                  "啊|呵呵|哈|嘻嘻|嘻|哇|呃|唉|棒|太棒了|真棒|不错|不錯|很好|太好了|真好|好极了|厉害|"
                  "厲害|牛|赞|讚|当然|當然|有意思|有道理|说得对|哈哈"},
    {PHRASE_CHAT, "你好吗|你好嗎|最近怎么样|最近怎麼樣|最近好吗|吃了吗|吃了嗎|在吗|在嗎|我很好|"
                  "还不错|還不錯|很高兴认识你|很高興認識你|祝你有美好的一天|祝您有美好的一天|祝您生活愉快|"
                  "祝你愉快|祝您愉快|祝你好运|加油"},
    {PHRASE_CHAT, "还有什么可以帮您的吗|还有什么可以帮你的吗|还有什么我可以帮您的吗|"
                  "还有什么我可以帮你的吗|有什么可以帮您的吗|有什么可以帮你的吗|有什么可以帮您|"
                  "有什么可以帮你|有什么可以帮助您的吗|有什么我可以帮助你的吗|有什么我可以帮您的吗|"
                  "有什么我能帮您的吗|请问有什么可以帮您|有什麼可以幫您的嗎|還有什麼可以幫您的嗎|"
                  "很高兴能帮到你|很高兴能帮到您|很高兴为您服务|很高兴帮助你|很乐意帮忙|随时告诉我|"
                  "请随时告诉我|随时问我|请随时问我|如果还有其他问题|如果您还有其他问题|"
                  "如果你还有其他问题|如有其他问题|如果有任何问题|如果您有任何问题"},
    {PHRASE_REPLY, "好|行|可以|是|是的|对|對|对的|不是|不|不对|不對|不行|不可以|没有|沒有|有|要|不要|"
                   "也许|可能|继续|繼續|请继续|請繼續"},
    {PHRASE_FILLER, "的|了|吧|呀|啦|嘛|呢|你|您|我|大家|非常|很|太|真|请|請|也|都|就|那|先|们|吗|嗎|朋友|"
                    "今天|啊|哟|哎|喂"},
};
#define N_PHRASES (sizeof(phrases) / sizeof(phrases[0]))

#endif
