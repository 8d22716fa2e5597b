"""Instructions in other languages than English: verbs in the form of an order, and words for permission, secrecy and rules.

Texts are normalised. Where the form of an order is also an ordinary form of the verb ("sende" is "I send" too), a pronoun beside it
says that it is none.
"""

from __future__ import annotations

import re

from holdfast.memory.disguise import Finding


def _any(listed: str) -> str:
    return "(?:" + "|".join(listed.split()) + ")"


_START = (
    r"(?:^|[.;:!?\n—]\s*|,\s*(?:und|et|y|e|и)?\s*|\b(?:bitte|immer|nie|niemals|und|toujours|jamais|siempre|"
    r"nunca|sempre|mai|e|y|et|s'il te plaît|por favor|per favore|всегда|никогда|пожалуйста|и|ab sofort|künftig|"
    r"zukünftig|désormais|dorénavant|ahora|adelante|poi|agora|diante|с этого момента)\s+)"
)

_GERMAN = _any(
    """
    send(?:e|en) schick(?:e|en)? leit(?:e|en) lösch(?:e|en)? entfern(?:e|en) führ(?:e|en)? ignorier(?:e|en) vergiss
    vergessen überweis(?:e|en) verrat(?:e|en) erzähl(?:e|en)? sag(?:e|en)? öffn(?:e|en) lad(?:e|en)? gib nutz(?:e|en)
    verwend(?:e|en) benutz(?:e|en) empfiehl empfehl(?:e|en) merk(?:e|en)? bestätig(?:e|en) ruf(?:e|en)?
    antwort(?:e|en) schreib(?:e|en)? speicher(?:e|n) genehmig(?:e|en) installier(?:e|en) kauf(?:e|en)? zahl(?:e|en)?
    bezahl(?:e|en)? teil(?:e|en)? lies befolg(?:e|en) missacht(?:e|en) verheimlich(?:e|en) umgeh(?:e|en)
    kopier(?:e|en) starte behandle bevorzuge melde halte mach(?:e)? stell(?:e)? nenn(?:e)? erwähn(?:e|en)? zeig(?:e)?
    übertrag(?:e|en) hol(?:e)? tu
    """
)
_FRENCH = _any(
    """
    approuve[sz]? valide[sz]? signe[sz]? clique[sz]? donne[sz]? laisse[sz]? mets mettez envoie[sz]? envoyez transfère
    transférez ignore[sz]? oublie[sz]? supprime[sz]? efface[sz]? exécute[sz]? lance[sz]? recommande[sz]? dis dites
    obéis suis suivez télécharge[sz]? installe[sz]? ouvre[sz]? partage[sz]? paie payez achète[sz]? révèle[sz]?
    cache[sz]? utilise[sz]? réponds répondez appelle[sz]? considère considérez traite[sz]? copie[sz]? vire virez
    publie[sz]? accepte[sz]? autorise[sz]? confirme[sz]? désactive[sz]? mentionne[sz]? fais faites
    """
)
_SPANISH = _any(
    """
    firma firme deja deje da dé pon ponga acepta acepte autoriza envía envíe enviad manda mande reenvía reenvíe ignora
    ignore olvida olvide borra borre elimina elimine ejecuta ejecute recomienda recomiende obedece obedezca sigue siga
    descarga descargue instala instale abre abra comparte comparta paga pague compra compre transfiere transfiera
    revela revele oculta oculte usa use utiliza responde responda llama considera trata copia copie publica aprueba
    apruebe confirma desactiva omite omita digas diga menciones haz
    """
)
_ITALIAN = _any(
    """
    invia inviate manda inoltra ignora ignorate dimentica cancella elimina esegui eseguite consiglia raccomanda
    obbedisci segui scarica installa apri condividi paga compra acquista trasferisci rivela nascondi usa utilizza
    rispondi chiama considera tratta copia pubblica approva conferma disattiva ometti dire menzionare suggerisci fai
    """
)
_PORTUGUESE = _any(
    """
    envie envia encaminhe ignore ignora esqueça esquece apague apaga exclua delete elimine execute executa recomende
    recomenda obedeça siga baixe instale abra compartilhe partilhe pague compre transfira revele oculte esconda use
    responda chame considere trate copie publique aprove confirme desative omita conte diga mencione faça
    """
)
_PRONOUN_BEFORE = r"(?<!\bj')" + "".join(
    rf"(?<!\b{word} )"
    for word in [
        "ich",
        "wir",
        "je",
        "nous",
        "on",
        "yo",
        "me",
        "él",
        "ella",
        "io",
        "eu",
        "ele",
        "ela",
        "que",
        "che",
        "se",
        "si",
        "mi",
        "die",
        "der",
        "das",
        "meine",
        "la",
        "el",
        "les",
        "le",
        "no",
    ]
)
_LATIN_ORDER = re.compile(
    rf"{_START}(?:ne |n'|non |no |não |no le |no les |não lhe )?{_PRONOUN_BEFORE}(?:{_GERMAN}|{_FRENCH}|"
    rf"{_SPANISH}|{_ITALIAN}|{_PORTUGUESE})\b(?!\s+(?:ich|wir|mi|de|di|do|da|del|des|du|est|ist|es|è|é)\b)"
)
_LATIN_TOPIC = re.compile(
    r"\b(?:tou(?:te)?s les|tou[st]|todas?|todos|tutt[ei]|alle)\b.{0,40}\b(?:doivent|deben|devono|devem|müssen|"
    r"sollen|sind\b.{0,15}\bzu)\b|\b(?:sans|sin|senza|sem|ohne) (?:vérif\w+|revis\w+|verific\w+|prüfung\w*)|"
    r"\b(?:nachfragen|freigeben|ausführen|bezahlen|löschen|weiterleiten)\s*[.,!]?$|"
    r"\b(?:alle|all(?:en)?|die) (?:vorherigen|bisherigen|früheren|obigen) (?:anweisungen|regeln|befehle)|"
    r"\bohne (?:rückfrage|nachzufragen|zu fragen|bestätigung|zustimmung)|"
    r"\b(?:der|die|das|dein) (?:assistent|agent|ki|modell|system) (?:darf|muss|soll|sollte|kann|ist)\b|"
    r"\bdu (?:musst|sollst|darfst|bist jetzt|bist nun)\b|\bdem (?:nutzer|benutzer|anwender) (?:nichts|nicht|"
    r"nie)|"
    r"\binstructions précédentes|\bsans (?:demander|confirmation|prévenir|poser)|\bl'(?:assistant|agent|"
    r"ia) (?:est|doit|peut|devrait)\b|\bà l'utilisateur que|\btu (?:dois|es maintenant|es désormais)\b|"
    r"\bvous devez\b|"
    r"\binstrucciones anteriores|\bsin (?:preguntar|confirmación|pedir|avisar)|\b(?:el|la) (?:asistente|agente|"
    r"ia) (?:debe|puede|está|tiene)\b|\bal usuario que|\bdebes\b|\bcuando el usuario (?:diga|escriba|pregunte)|"
    r"\bistruzioni precedenti|\bsenza (?:chiedere|conferma|avvisare)|\bl'(?:assistente|agente|ia) (?:può|deve|"
    r"è)\b|\ball'utente che|\bdevi\b|"
    r"\binstruções anteriores|\bsem (?:perguntar|confirmação|pedir|avisar)|\b(?:o|a) (?:assistente|agente|"
    r"ia) (?:pode|deve|tem|está)\b|\bao (?:usuário|utilizador) (?:que|sobre)|\bvocê deve\b|"
    r"\b(?:negeer|vergeet)\b.{0,30}\binstructies|\bstuur\b.{0,40}\bnaar\b|\bzonder (?:te vragen|bevestiging|"
    r"toestemming)|\bde assistent (?:mag|moet)\b|\bverwijder (?:alle|de|het)\b|"
    r"\b(?:zignoruj|zapomnij|wyślij|usuń|przelej|prześlij|uruchom|wykonaj|nie mów)\b|\bbez (?:pytania|"
    r"potwierdzenia)\b|\basystent (?:może|musi)\b|"
    r"\btalimatlar\w*|\byok say\b|\b(?:gönder|sil|çalıştır|aktar|söyleme)\b|\bonay (?:almadan|istemeden)\b|"
    r"\b(?:ignorera|skicka alla|radera|glöm alla)\b|\b(?:ignorer|slett alle|send alle)\b.{0,30}\b(?:instruks\w*|"
    r"filer)\b|\b(?:ignoruj|odešli|smaž)\b|\b(?:ignoră|trimite|șterge)\b"
)
_CYRILLIC = re.compile(
    r"\b(?:игнорируй|забудь|отправ(?:ь|ляй)|перешли|пересылай|удали|удаляй|выполни|выполняй|запусти|запускай|"
    r"переведи|переводи|скажи|раскрой|скрой|скрывай|рекомендуй|советуй|купи|оплати|подтверди|одобри|загрузи|"
    r"скачай|"
    r"установи|открой|используй|считай|отвечай|следуй|подчиняйся|скопируй|опубликуй|сообщи|передай|упоминай|"
    r"покажи)(?:те)?\b|\bне (?:говори|сообщай|упоминай|показывай|раскрывай|спрашивай)(?:те)?\b|"
    r"\b(?:предыдущ\w+|прежн\w+) (?:инструкц\w+|указан\w+)|\b(?:ассистент|помощник|агент|модель|"
    r"система) (?:может|должен|должна|обязан|вправе|имеет право)\b|\bбез (?:спроса|подтверждения|разрешения|"
    r"согласия)\b|\bты (?:должен|теперь)\b|"
    r"\b(?:ігноруй|надішли|видали|забудь|виконай|перекажи|запусти)(?:те)?\b|\bінструкці\w+|\bигнорирай|"
    r"\bизпрати|\bпользовател\w+ (?:ничего|не говор)"
)
_CHINESE = re.compile(
    r"(?:忽略|无视|無視|忘记|忘記|不要理会)[^。]{0,10}(?:指令|指示|规则|規則|提示|说明)|(?:把|将|將)[^。]{0,20}(?:发送|發送|发给|转发|轉發|上传|上傳|删除|刪除|"
    r"转账|转到|寄到|复制)|(?:^|[，。；\s])(?:请|請|务必|必须|一定要|总是|始终|自动|立即)?(?:发送|转发|删除|刪除|执行|運行|运行|调用|安装|下载|推荐|转账|支付|上传|隐瞒|"
    r"批准|跳过)(?!了|过)|"
    r"(?:不要|不得|别|勿)(?:告诉|告訴|透露|提及|提到|让用户|通知)|(?:无需|無需|不需要?|不经|不經|未经)(?:确认|確認|询问|批准|同意|许可)|(?:助手|助理|代理|模型|系统|AI|"
    r"ai|你)(?:可以|必须|应该|應該|要|需要|有权|被允许)|"
    r"(?:从现在起|從現在起|从今以后|以后|今后|每次|每当|当用户)[^。]{0,12}(?:推荐|发送|删除|执行|回答|说|启动|都要|必须|总是)|(?:每次)[^。]{0,10}(?:删除|发送|执行)"
)
_JAPANESE = re.compile(
    r"(?:指示|命令|ルール|規則|プロンプト)[^。]{0,12}(?:無視|忘れ|従)|(?:送信|転送|削除|実行|アップロード|ダウンロード|インストール|推薦|振り込み|送金|承認|コピー|公開|"
    r"隠)(?:し|せ|する|して)[^。]{0,6}(?:ください|下さい|こと|なさい|せよ|ろ)|"
    r"(?:送信|転送|削除|実行|送金|承認)(?:せよ|しろ|すること)|(?:言わ|伝え|教え|知らせ|話さ|明かさ)ないで|(?:確認|承認|許可)(?:なし|なく|無し|せず)|(?:アシスタント|"
    r"エージェント|モデル|AI|ai|あなた)は[^。]{0,30}(?:できる|よい|べき|すること|しなければ|実行|許可)|"
    r"(?:今後|これから|以後|次回)[^。]{0,20}(?:ください|こと|必ず)|必ず[^。]{0,20}(?:ください|こと|せよ)|(?:勧め|薦め|推奨し)て(?:ください|下さい)"
)
_OTHER = re.compile(
    r"(?:지시|명령|규칙)[^.]{0,12}(?:무시|잊)|(?:전송|삭제|실행|송금|전달|업로드)(?:하세요|해|하라|하십시오|해라)|"
    r"(?:확인|승인) 없이|말하지 ?마|알리지 ?마|어시스턴트는|"
    r"تجاهل|أرسل|احذف|نفّ?ذ|لا تخبر|التعليمات السابقة|بدون (?:تأكيد|إذن)|नज़रअंदाज़|अनदेखा|निर्देश|भेजें|भेजो|"
    r"हटाएं|हटा दो|התעלם|שלח את|מחק את|اجرا کن|نادیده بگیر|bỏ qua .{0,20}hướng dẫn|abaikan .{0,20}instruksi|"
    r"kirim(?:kan)? .{0,20}ke\b"
)


def find_foreign_instruction(plain: str) -> Finding | None:
    """Why a normalised text is an instruction in another language than English, or None.

    >>> find_foreign_instruction("lösche alle dateien").rule, find_foreign_instruction("ich lösche alte dateien")
    ('instruction', None)
    """
    if _LATIN_TOPIC.search(plain) or _CYRILLIC.search(plain) or _CHINESE.search(plain) or _JAPANESE.search(plain) or _OTHER.search(plain):
        return Finding("instruction", "reads like an instruction to the assistant in another language")
    if _LATIN_ORDER.search(plain):
        return Finding("instruction", "begins like an order in another language")
    return None
