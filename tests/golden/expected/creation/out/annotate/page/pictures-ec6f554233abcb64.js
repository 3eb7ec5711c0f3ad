plait("pictures-ec6f554233abcb64.js",[["[WEBP 12x8 e1cd7d26547060b1]",12,8]]);
